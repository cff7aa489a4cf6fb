package redis_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	goredis "github.com/redis/go-redis/v9"

	"github.com/letterbox-go/letterbox/transport/brokers/internal/brokertest"
	"github.com/letterbox-go/letterbox/transport/brokers/redis"
	"github.com/letterbox-go/letterbox/transport/wminbox"
)

const address = "127.0.0.1:6379"

func TestMain(m *testing.M) {
	brokertest.Child(broker)
	os.Exit(m.Run())
}

var broker = brokertest.Broker{Open: open, Subscriber: subscriber, Publish: publish, IDs: []wminbox.IDExtractor{wminbox.Metadata("message-id")}}

func TestRedisStreams(t *testing.T) {
	t.Parallel()
	client := goredis.NewClient(&goredis.Options{Addr: address})
	defer client.Close()
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Skipf("start Redis on %s to run this test: %v", address, err)
	}
	brokertest.Run(t, broker)
}

func open(t testing.TB) (url, topic string) {
	topic = brokertest.UniqueTopic()
	t.Cleanup(func() {
		client := goredis.NewClient(&goredis.Options{Addr: address})
		defer client.Close()
		if err := client.Del(context.Background(), topic).Err(); err != nil {
			t.Error(err)
		}
	})
	return address, topic
}

func subscriber(url, _ string) (message.Subscriber, error) {
	return redisstream.NewSubscriber(redisstream.SubscriberConfig{
		Client:        goredis.NewClient(&goredis.Options{Addr: url}),
		Unmarshaller:  redis.Unmarshaller{PayloadField: "body"},
		ConsumerGroup: "inbox",
		// How soon another consumer takes over what a dead one had.
		MaxIdleTime: 500 * time.Millisecond, ClaimInterval: 300 * time.Millisecond,
		DisableIndefiniteInitialBlock: true,
	}, watermill.NopLogger{})
}

func publish(url, topic string, messages []brokertest.Foreign) error {
	client := goredis.NewClient(&goredis.Options{Addr: url})
	defer client.Close()
	for _, m := range messages {
		values := map[string]any{"body": m.Body}
		if m.ID != "" {
			values["message-id"] = m.ID
		}
		if m.Name != "" {
			values["name"] = m.Name
		}
		if err := client.XAdd(context.Background(), &goredis.XAddArgs{Stream: topic, Values: values}).Err(); err != nil {
			return err
		}
	}
	return nil
}

func TestEntriesOfAnyProducerAreRead(t *testing.T) {
	t.Parallel()
	sent := message.NewMessage("u", []byte("\x00\xff"))
	sent.Metadata.Set("name", "order")
	written, err := redis.Unmarshaller{}.Marshal("topic", sent)
	if err != nil {
		t.Fatal(err)
	}
	asRead := map[string]any{}
	for name, value := range written {
		switch value := value.(type) {
		case string:
			asRead[name] = value
		case []byte:
			asRead[name] = string(value)
		}
	}
	for _, c := range []struct {
		name     string
		values   map[string]any
		uuid     string
		payload  string
		metadata message.Metadata
	}{
		{"Watermill's", asRead, "u", "\x00\xff", message.Metadata{"name": "order"}},
		{"foreign with a payload", map[string]any{"payload": "x", "id": "1"}, "", "x", message.Metadata{"id": "1"}},
		{"foreign without one", map[string]any{"b": "2", "a": "1"}, "", `{"a":"1","b":"2"}`, message.Metadata{"a": "1", "b": "2"}},
		{"empty", nil, "", "{}", message.Metadata{}},
		{"forged", map[string]any{"payload": "x", "Letterbox-Position": "1"}, "", "x", message.Metadata{}},
		{
			"Watermill's with broken metadata",
			map[string]any{redisstream.UUIDHeaderKey: "u", "payload": "x", "metadata": "\xc1"},
			"", "x",
			message.Metadata{redisstream.UUIDHeaderKey: "u", "metadata": "\xc1"},
		},
	} {
		got, err := redis.Unmarshaller{}.Unmarshal(c.values)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.metadata, got.Metadata); diff != "" {
			t.Errorf("%s: want -, got +:\n%s", c.name, diff)
		}
		if got.UUID != c.uuid || string(got.Payload) != c.payload {
			t.Errorf("%s: uuid %q, payload %q", c.name, got.UUID, got.Payload)
		}
	}
}

func FuzzUnmarshal(f *testing.F) {
	f.Add("u", "\x81\xa4name\xa5order", "x", "key", "value")
	f.Add("u", "\xdf\xff\xff\xff\xff", "x", "Letterbox-x", "value")
	f.Fuzz(func(t *testing.T, uuid, metadata, payload, key, value string) {
		for _, values := range []map[string]any{
			{redisstream.UUIDHeaderKey: uuid, "metadata": metadata, "payload": payload, key: value},
			{"payload": payload, key: value},
			{key: value},
		} {
			msg, err := redis.Unmarshaller{}.Unmarshal(values)
			if err != nil || msg == nil || msg.Metadata == nil {
				t.Fatalf("%v %+v", err, msg)
			}
			for name := range msg.Metadata {
				if wminbox.Reserved(name) {
					t.Errorf("%q was kept", name)
				}
			}
		}
	})
}
