package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/letterbox-go/letterbox/transport/wminbox"
)

// broker is a topic with everything that the story needs of it.
type broker struct {
	name        string
	topic       string
	publisher   message.Publisher
	subscriber  message.Subscriber
	sendForeign func([]foreign) error // with the broker's own client
	ids         []wminbox.IDExtractor // where that client puts the id
	close       func()
}

func openBroker(ctx context.Context, o options, dir string) (*broker, error) {
	topic := fmt.Sprintf("letterbox-example-%d-%d", os.Getpid(), time.Now().UnixMilli())
	url := func(fallback string) string {
		if o.url != "" {
			return o.url
		}
		return fallback
	}
	switch o.broker {
	case "":
		if o.url != "" {
			return nil, fmt.Errorf("-url needs -broker")
		}
		return embeddedNATS(topic, dir)
	case "nats":
		return openNATS(topic, url("nats://127.0.0.1:4222"))
	case "amqp":
		return openAMQP(topic, url("amqp://guest:guest@127.0.0.1:5672/"))
	case "kafka":
		if o.url == "" {
			return nil, fmt.Errorf("-broker kafka needs -url host:port")
		}
		return openKafka(topic, o.url)
	case "sql":
		return openSQL(ctx, topic, url(o.dsn))
	}
	return nil, fmt.Errorf("-broker %q: nats, amqp, kafka or sql", o.broker)
}

// closeAll runs the functions in order.
func closeAll(functions ...func() error) func() {
	return func() {
		for _, f := range functions {
			_ = f()
		}
	}
}
