package nats_test

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmjetstream "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/jetstream"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/letterbox-go/letterbox/transport/brokers/internal/brokertest"
	"github.com/letterbox-go/letterbox/transport/brokers/nats"
	"github.com/letterbox-go/letterbox/transport/wminbox"
)

func TestMain(m *testing.M) {
	brokertest.Child(broker)
	os.Exit(m.Run())
}

// broker is JetStream, behind the subscriber that Watermill recommends.
var broker = brokertest.Broker{
	Open:       open,
	Subscriber: func(url, topic string) (message.Subscriber, error) { return subscriber(url, topic, natsgo.ManualAck()) },
	Publish:    publish,
	IDs:        []wminbox.IDExtractor{wminbox.NATSMsgID},
}

func TestJetStream(t *testing.T) {
	t.Parallel()
	brokertest.Run(t, broker)
}

const ackWait = time.Second

// open starts a server in this process, with a stream.
func open(t testing.TB) (url, topic string) {
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the NATS server did not start")
	}
	url, topic = s.ClientURL(), brokertest.UniqueTopic()
	connection, js := connect(t, url)
	defer connection.Close()
	// A short window, so that the server hands on what a producer repeats.
	if _, err := js.AddStream(&natsgo.StreamConfig{Name: topic, Subjects: []string{topic}, Duplicates: 100 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	// Made here: a consumer that a subscription makes goes when it ends, with
	// everything it knew about acks.
	if _, err := js.AddConsumer(topic, &natsgo.ConsumerConfig{
		Durable: "inbox", DeliverSubject: natsgo.NewInbox(), DeliverPolicy: natsgo.DeliverAllPolicy,
		AckPolicy: natsgo.AckExplicitPolicy, AckWait: ackWait, MaxAckPending: 1,
	}); err != nil {
		t.Fatal(err)
	}
	return url, topic
}

func connect(t testing.TB, url string) (*natsgo.Conn, natsgo.JetStreamContext) {
	t.Helper()
	connection, err := natsgo.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	js, err := connection.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	return connection, js
}

func subscriber(url, topic string, options ...natsgo.SubOpt) (*wmnats.Subscriber, error) {
	return wmnats.NewSubscriber(wmnats.SubscriberConfig{
		URL:            url,
		Unmarshaler:    nats.Core{},
		AckWaitTimeout: time.Minute,
		CloseTimeout:   time.Second,
		JetStream: wmnats.JetStreamConfig{
			DurablePrefix: "inbox",
			SubscribeOptions: append([]natsgo.SubOpt{
				natsgo.DeliverAll(), natsgo.AckExplicit(), natsgo.AckWait(ackWait), natsgo.MaxAckPending(1),
			}, options...),
		},
	}, watermill.NopLogger{})
}

func publish(url, topic string, messages []brokertest.Foreign) error {
	connection, err := natsgo.Connect(url)
	if err != nil {
		return err
	}
	defer connection.Close()
	js, err := connection.JetStream()
	if err != nil {
		return err
	}
	for _, m := range messages {
		msg := natsgo.NewMsg(topic)
		msg.Data = []byte(m.Body)
		if m.ID != "" {
			msg.Header.Set("Nats-Msg-Id", m.ID)
		}
		if m.Name != "" {
			msg.Header.Set("name", m.Name)
		}
		msg.Header["X-Two"] = []string{"a", "b"} // Watermill's own unmarshaler fails on it
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			ack, err := js.PublishMsg(msg)
			if err != nil {
				return err
			}
			if !ack.Duplicate {
				break
			}
			if time.Now().After(deadline) {
				return errors.New("the server still deduplicates")
			}
		}
	}
	return nil
}

func TestHeadersAndPositionAreKept(t *testing.T) {
	t.Parallel()
	url, topic := open(t)
	connection, js := connect(t, url)
	t.Cleanup(connection.Close)
	msg := natsgo.NewMsg(topic)
	msg.Data = []byte("\x00\xff")
	msg.Header = natsgo.Header{
		"Nats-Msg-Id":           {"id-1"},
		"X-Two":                 {"a", "b"},
		"Letterbox-Position":    {"forged"},
		"ce-id":                 {"1"},
		wmnats.WatermillUUIDHdr: {"u"},
	}
	if _, err := js.PublishMsg(msg); err != nil {
		t.Fatal(err)
	}
	stored, err := js.GetMsg(topic, 1)
	if err != nil {
		t.Fatal(err)
	}

	check := func(t *testing.T, got *message.Message) {
		t.Helper()
		want := message.Metadata{"Nats-Msg-Id": "id-1", "X-Two": "a, b", "ce-id": "1"}
		if id, ok := wminbox.Position(got); !ok || id.Source != "jetstream:"+topic || id.MessageID != position(stored) {
			t.Errorf("position %+v", id)
		}
		delete(got.Metadata, wminbox.PositionKey)
		delete(got.Metadata, wminbox.PositionSourceKey)
		if diff := cmp.Diff(want, got.Metadata); diff != "" {
			t.Errorf("want -, got +:\n%s", diff)
		}
		if got.UUID != "u" || string(got.Payload) != "\x00\xff" {
			t.Errorf("uuid %q, payload %q", got.UUID, got.Payload)
		}
	}
	t.Run("by the subscriber of pkg/nats", func(t *testing.T) {
		s, err := subscriber(url, topic, natsgo.ManualAck())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		check(t, first(t, s, topic))
	})
	t.Run("by the subscriber of pkg/jetstream", func(t *testing.T) {
		s, err := wmjetstream.NewSubscriber(wmjetstream.SubscriberConfig{
			URL: url, Unmarshaler: nats.JetStream{}, Logger: watermill.NopLogger{},
			ConfigureConsumer: func(string, string) jetstream.ConsumerConfig { return jetstream.ConsumerConfig{} },
		})
		if err != nil {
			t.Fatal(err)
		}
		check(t, first(t, s, topic))
	})
}

func position(stored *natsgo.RawStreamMsg) string {
	return fmt.Sprintf("1@%d", stored.Time.UnixNano())
}

func first(t *testing.T, s message.Subscriber, topic string) *message.Message {
	t.Helper()
	out, err := s.Subscribe(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case msg := <-out:
		msg.Ack()
		return msg
	case <-time.After(time.Minute):
		t.Fatal("nothing came")
		return nil
	}
}

// The reason why the package comment insists on ManualAck.
func TestWithoutManualAckTheClientAcksWhatNobodyAcked(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]natsgo.SubOpt{"without": nil, "with": {natsgo.ManualAck()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, topic := open(t)
			if err := publish(url, topic, []brokertest.Foreign{{ID: "1", Name: "order"}}); err != nil {
				t.Fatal(err)
			}
			s, err := subscriber(url, topic, options...)
			if err != nil {
				t.Fatal(err)
			}
			out, err := s.Subscribe(t.Context(), topic)
			if err != nil {
				t.Fatal(err)
			}
			<-out // delivered, neither acked nor nacked
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			connection, js := connect(t, url)
			defer connection.Close()
			lost := func() bool {
				info, err := js.ConsumerInfo(topic, "inbox")
				if err != nil {
					t.Fatal(err)
				}
				return info.NumAckPending == 0 && info.NumPending == 0
			}
			deadline := time.Now().Add(2 * time.Second)
			for !lost() && time.Now().Before(deadline) {
				time.Sleep(20 * time.Millisecond)
			}
			if got, want := lost(), len(options) == 0; got != want {
				t.Errorf("the message is acked: %v, want %v", got, want)
			}
		})
	}
}

func FuzzUnmarshal(f *testing.F) {
	f.Add("Nats-Msg-Id", "1", "2", []byte("{}"))
	f.Add("letterbox-position", "1", "", []byte{})
	f.Fuzz(func(t *testing.T, name, one, two string, data []byte) {
		for _, values := range [][]string{nil, {one}, {one, two}} {
			msg, err := nats.Core{}.Unmarshal(&natsgo.Msg{Header: natsgo.Header{name: values}, Data: data})
			if err != nil || string(msg.Payload) != string(data) {
				t.Fatalf("%v %+v", err, msg)
			}
			for key := range msg.Metadata {
				if wminbox.Reserved(key) {
					t.Errorf("%q was kept", key)
				}
			}
		}
	})
}
