package amqp_test

import (
	"context"
	"net"
	"os"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill"
	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/letterbox-go/letterbox/transport/brokers/amqp"
	"github.com/letterbox-go/letterbox/transport/brokers/internal/brokertest"
	"github.com/letterbox-go/letterbox/transport/wminbox"
)

const (
	address = "127.0.0.1:5672"
	rabbit  = "amqp://guest:guest@" + address + "/"
)

func TestMain(m *testing.M) {
	brokertest.Child(broker)
	os.Exit(m.Run())
}

var broker = brokertest.Broker{Open: open, Subscriber: subscriber, Publish: publish, IDs: []wminbox.IDExtractor{wminbox.AMQPMessageID}}

func TestRabbitMQ(t *testing.T) {
	t.Parallel()
	if connection, err := net.DialTimeout("tcp", address, time.Second); err != nil {
		t.Skipf("start RabbitMQ on %s to run this test: %v", address, err)
	} else {
		_ = connection.Close()
	}
	brokertest.Run(t, broker)
}

func open(t testing.TB) (url, topic string) {
	topic = brokertest.UniqueTopic()
	onChannel := func(call func(*amqp091.Channel) error) {
		connection, err := amqp091.Dial(rabbit)
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close()
		channel, err := connection.Channel()
		if err == nil {
			err = call(channel)
		}
		if err != nil {
			t.Error(err)
		}
	}
	onChannel(func(c *amqp091.Channel) error {
		_, err := c.QueueDeclare(topic, true, false, false, false, nil)
		return err
	})
	t.Cleanup(func() {
		onChannel(func(c *amqp091.Channel) error { _, err := c.QueueDelete(topic, false, false, false); return err })
	})
	return rabbit, topic
}

func subscriber(url, _ string) (message.Subscriber, error) {
	config := wmamqp.NewDurableQueueConfig(url)
	config.Marshaler = amqp.Marshaler{}
	return wmamqp.NewSubscriber(config, watermill.NopLogger{})
}

func publish(url, topic string, messages []brokertest.Foreign) error {
	connection, err := amqp091.Dial(url)
	if err != nil {
		return err
	}
	defer connection.Close()
	channel, err := connection.Channel()
	if err != nil {
		return err
	}
	if err := channel.Confirm(false); err != nil {
		return err
	}
	for _, m := range messages {
		headers := amqp091.Table{"attempt": int32(1)} // Watermill's own marshaler fails on it
		if m.Name != "" {
			headers["name"] = m.Name
		}
		confirmed, err := channel.PublishWithDeferredConfirm("", topic, false, false, amqp091.Publishing{
			MessageId: m.ID, Headers: headers, Body: []byte(m.Body), DeliveryMode: amqp091.Persistent,
		})
		if err != nil {
			return err
		}
		if _, err := confirmed.WaitContext(context.Background()); err != nil {
			return err
		}
	}
	return nil
}

func TestHeadersOfEveryTypeAreKept(t *testing.T) {
	t.Parallel()
	got, err := amqp.Marshaler{}.Unmarshal(amqp091.Delivery{
		MessageId: "id-1", AppId: "shop", ContentType: "application/json", Body: []byte("\x00\xff"),
		Headers: amqp091.Table{
			wmamqp.DefaultMessageUUIDHeaderKey: "u",
			"string":                           "s", "int": int64(9007199254740993), "bool": true, "nothing": nil, "bytes": []byte("b"),
			"time":                   time.Date(2024, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600)),
			"table":                  amqp091.Table{"a": int32(1)},
			"array":                  []any{"a", int32(1)},
			"Letterbox-AMQP-type":    "forged",
			"letterbox-amqp-unknown": "forged",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := message.Metadata{
		"string": "s", "int": "9007199254740993", "bool": "true", "nothing": "", "bytes": "b",
		"time": "2024-01-02T02:04:05Z", "table": `{"a":1}`, "array": `["a",1]`,
		amqp.MessageIDKey: "id-1", amqp.AppIDKey: "shop", amqp.ContentTypeKey: "application/json",
	}
	if diff := cmp.Diff(want, got.Metadata); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
	if got.UUID != "u" || string(got.Payload) != "\x00\xff" {
		t.Errorf("uuid %q, payload %q", got.UUID, got.Payload)
	}
}

func TestWhatWatermillPublishesComesBackTheSame(t *testing.T) {
	t.Parallel()
	sent := message.NewMessage("u", []byte("x"))
	sent.Metadata.Set("name", "order")
	publishing, err := amqp.Marshaler{}.Marshal(sent)
	if err != nil {
		t.Fatal(err)
	}
	got, err := amqp.Marshaler{}.Unmarshal(amqp091.Delivery{Headers: publishing.Headers, Body: publishing.Body})
	if err != nil || !got.Equals(sent) {
		t.Errorf("%v %v", got, err)
	}
}

func FuzzUnmarshal(f *testing.F) {
	f.Add("id", "name", []byte("x"), int64(1), 1.5, []byte("{}"))
	f.Fuzz(func(t *testing.T, id, key string, value []byte, number int64, float float64, body []byte) {
		for _, v := range []any{value, string(value), number, float, amqp091.Table{key: float}, []any{value, nil, float}} {
			msg, err := amqp.Marshaler{}.Unmarshal(amqp091.Delivery{MessageId: id, Headers: amqp091.Table{key: v}, Body: body})
			if err != nil || string(msg.Payload) != string(body) || msg.Metadata[amqp.MessageIDKey] != id {
				t.Errorf("%v %+v", err, msg)
			}
			if utf8.ValidString(key) && !wminbox.Reserved(key) && key != wmamqp.DefaultMessageUUIDHeaderKey && len(msg.Metadata) == 0 {
				t.Error("the header is gone")
			}
		}
	})
}
