package main

import (
	"errors"
	"path/filepath"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"

	"github.com/letterbox-go/letterbox/transport/brokers/nats"
	"github.com/letterbox-go/letterbox/transport/wminbox"
)

// embeddedNATS starts JetStream in this process.
func embeddedNATS(topic, dir string) (*broker, error) {
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true,
		StoreDir: filepath.Join(dir, "jetstream"), NoLog: true, NoSigs: true,
	})
	if err != nil {
		return nil, err
	}
	s.Start()
	stop := func() error { s.Shutdown(); s.WaitForShutdown(); return nil }
	if !s.ReadyForConnections(30 * time.Second) {
		_ = stop()
		return nil, errors.New("the NATS server did not start")
	}
	b, err := openNATS(topic, s.ClientURL())
	if err != nil {
		_ = stop()
		return nil, err
	}
	b.name = "NATS JetStream in this process"
	disconnect := b.close
	b.close = func() { disconnect(); _ = stop() }
	return b, nil
}

const durable = "inbox"

func openNATS(topic, url string) (*broker, error) {
	connection, err := natsgo.Connect(url)
	if err != nil {
		return nil, err
	}
	js, err := connection.JetStream()
	if err != nil {
		return nil, err
	}
	if _, err := js.AddStream(&natsgo.StreamConfig{Name: topic, Subjects: []string{topic}}); err != nil {
		return nil, err
	}
	// The consumer outlives its subscriptions, and knows what was acked.
	if _, err := js.AddConsumer(topic, &natsgo.ConsumerConfig{
		Durable: durable, DeliverSubject: natsgo.NewInbox(), AckPolicy: natsgo.AckExplicitPolicy, AckWait: 30 * time.Second,
	}); err != nil {
		return nil, err
	}
	logger := watermill.NopLogger{}
	subscriber, err := wmnats.NewSubscriber(wmnats.SubscriberConfig{
		URL: url, Unmarshaler: nats.Core{},
		JetStream: wmnats.JetStreamConfig{
			DurablePrefix: durable,
			// Without ManualAck the client acks what the subscriber gives back unacked.
			SubscribeOptions: []natsgo.SubOpt{natsgo.ManualAck(), natsgo.AckExplicit(), natsgo.AckWait(30 * time.Second)},
		},
	}, logger)
	if err != nil {
		return nil, err
	}
	publisher, err := wmnats.NewPublisher(wmnats.PublisherConfig{URL: url, Marshaler: nats.Core{}}, logger)
	if err != nil {
		return nil, err
	}
	return &broker{
		name: "NATS JetStream", topic: topic, publisher: publisher, subscriber: subscriber,
		// A CloudEvent: JetStream would drop a repeated Nats-Msg-Id by itself.
		ids: []wminbox.IDExtractor{wminbox.CloudEvents, wminbox.NATSMsgID},
		sendForeign: func(messages []foreign) error {
			for _, m := range messages {
				msg := natsgo.NewMsg(topic)
				msg.Data = []byte(m.body)
				msg.Header.Set("ce-id", m.id)
				msg.Header.Set("ce-source", "/shop")
				if _, err := js.PublishMsg(msg); err != nil {
					return err
				}
			}
			return nil
		},
		close: closeAll(publisher.Close, subscriber.Close, func() error { return js.DeleteStream(topic) }, func() error { connection.Close(); return nil }),
	}, nil
}
