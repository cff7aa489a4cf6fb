package wminbox_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/google/go-cmp/cmp"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/transport/wminbox"
)

func TestForeignMessagesThatCannotBeStoredAreParkedOnce(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b box) {
		var log strings.Builder
		f := route(t, handlerFor(t, b.repo, wminbox.Config{
			Reject: b.park, Decode: orderNames(), Logger: slog.New(slog.NewTextHandler(&log, nil)),
		}))
		const secret = "s3cr3t"
		for _, c := range []struct {
			name   string
			msg    *message.Message
			reason wminbox.Reason
		}{
			{"no id", newMessage("", `{"number":"s3cr3t"}`, "name", "order"), wminbox.ReasonNoID},
			{"a blank id", newMessage(" \t", `{}`, "name", "order"), wminbox.ReasonNoID},
			{"no name", newMessage("1", `{}`), wminbox.ReasonNoName},
			{"a blank name", newMessage("1", `{}`, "name", " "), wminbox.ReasonNoName},
			{"a name nobody knows", newMessage("1", `{}`, "name", "invoice"), wminbox.ReasonUnregistered},
			{"a body that is not JSON", newMessage("1", "\x00\xff s3cr3t", "name", "order"), wminbox.ReasonUndecodable},
			{"a body of the wrong type", newMessage("1", `{"number":1234567}`, "name", "order"), wminbox.ReasonUndecodable},
			{"an empty body", newMessage("1", "", "name", "order"), wminbox.ReasonUndecodable},
			{"an id that is too long", newMessage(strings.Repeat("x", 257), `{}`, "name", "order"), wminbox.ReasonInvalid},
			{"an id with a NUL", newMessage("a\x00b", `{}`, "name", "order"), wminbox.ReasonInvalid},
			{"an id of invalid UTF-8", newMessage("id-\xff", `{}`, "name", "order", "\xff", "\xff\x00"), wminbox.ReasonInvalid},
			{"a body over the limit", newMessage("1", `{"number":"`+strings.Repeat("s3cr3t ", 200_000)+`"}`, "name", "order"), wminbox.ReasonInvalid},
		} {
			before := len(b.parked(t))
			for range 2 { // as after a lost ack
				if got := f.deliver(c.msg.Copy()); got != acked {
					t.Fatalf("%s: the message was %s", c.name, got)
				}
			}
			rows := b.parked(t)
			if len(rows) != before+1 {
				t.Fatalf("%s: %d rows more", c.name, len(rows)-before)
			}
			metadata, err := json.Marshal(c.msg.Metadata)
			if err != nil {
				t.Fatal(err)
			}
			want := parked{"orders", "inbox", string(c.reason), "", []byte(c.msg.UUID), c.msg.Payload, metadata, 2}
			got := rows[before]
			if got.Detail == "" || strings.Contains(got.Detail, "\x00") || !utf8.ValidString(got.Detail) {
				t.Errorf("%s: detail %q", c.name, got.Detail)
			}
			got.Detail = ""
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: want -, got +:\n%s", c.name, diff)
			}
		}
		if n := b.count(t, "inbox_messages"); n != 0 {
			t.Errorf("%d messages were stored", n)
		}
		if strings.Contains(log.String(), secret) || strings.Contains(log.String(), "1234567") {
			t.Error("the log shows a payload")
		}
	})
}

func TestParkingSurvivesManyAtOnceAndManyMigrations(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b box) {
		park, err := wminbox.NewPark(b.db, wminbox.ParkConfig{Prefix: "o'clock"})
		if err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		errs := make(chan error, 10)
		for range 10 {
			group.Go(func() {
				err := park.Migrate(t.Context())
				for range 5 {
					err = errors.Join(err, park.Reject(t.Context(), newMessage("u", "x"), &wminbox.RejectError{Reason: wminbox.ReasonNoName}))
				}
				errs <- err
			})
		}
		group.Wait()
		close(errs)
		for err := range errs {
			if err != nil {
				t.Error(err)
			}
		}
		var deliveries []int
		if err := b.db.NewRaw(`SELECT deliveries FROM "o'clock_rejects"`).Scan(t.Context(), &deliveries); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]int{50}, deliveries); diff != "" {
			t.Error(diff)
		}
	})
}

func TestParkRefusesNamesItCannotQuote(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b box) {
		for _, prefix := range []string{`a"b`, "a?b", `a\b`, "a\x00b", "a\xff", strings.Repeat("x", 60)} {
			if _, err := wminbox.NewPark(b.db, wminbox.ParkConfig{Prefix: prefix}); err == nil {
				t.Errorf("%q was taken", prefix)
			}
		}
	})
}

func TestARejectErrorNeverShowsThePayload(t *testing.T) {
	t.Parallel()
	names := inbox.NewNameMap()
	inbox.RegisterWith[order](names, inbox.Registration{Name: "order", Codec: talkative{}})
	handle := handlerFor(t, storeNothing, wminbox.Config{Reject: wminbox.Nack{}, Decode: names, PauseBase: -1})
	err := handle(newMessage("1", `{"number":1234567}`, "name", "order"))
	var reason *wminbox.RejectError
	if !errors.As(err, &reason) || reason.Reason != wminbox.ReasonUndecodable || reason.Err == nil {
		t.Fatalf("%#v", err)
	}
	if strings.Contains(err.Error(), "1234567") {
		t.Errorf("the error shows the payload: %v", err)
	}
}

func TestPoisonPublishesWithWatermillsKeys(t *testing.T) {
	t.Parallel()
	channel := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, watermill.NopLogger{})
	t.Cleanup(func() { _ = channel.Close() })
	poison, err := wminbox.NewPoison(channel, "poisoned")
	if err != nil {
		t.Fatal(err)
	}
	f := route(t, handlerFor(t, storeNothing, wminbox.Config{Reject: poison}))
	original := newMessage("", "x", "name", "order")
	if got := f.deliver(original); got != acked {
		t.Fatalf("the message was %s", got)
	}
	out, err := channel.Subscribe(t.Context(), "poisoned")
	if err != nil {
		t.Fatal(err)
	}
	got := <-out
	got.Ack()
	want := message.Metadata{
		"name":                "order",
		"reason_poisoned":     "no message id",
		"topic_poisoned":      "orders",
		"handler_poisoned":    "inbox",
		"subscriber_poisoned": "wminbox_test.feed",
	}
	if diff := cmp.Diff(want, got.Metadata); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
	if string(got.Payload) != "x" || len(original.Metadata) != 1 {
		t.Errorf("payload %q, original metadata %v", got.Payload, original.Metadata)
	}
}

func TestAMessageThatCannotBePoisonedIsNacked(t *testing.T) {
	t.Parallel()
	poison, err := wminbox.NewPoison(deaf{}, "poisoned")
	if err != nil {
		t.Fatal(err)
	}
	f := route(t, handlerFor(t, storeNothing, wminbox.Config{Reject: poison}))
	if got := f.deliver(newMessage("", "x", "name", "order")); got != nacked {
		t.Errorf("the message was %s", got)
	}
}

// talkative is a codec whose errors show the payload.
type talkative struct{}

func (talkative) Encode(any) ([]byte, error)         { return nil, nil }
func (talkative) Decode(payload []byte, _ any) error { return errors.New("bad: " + string(payload)) }

type deaf struct{}

func (deaf) Publish(string, ...*message.Message) error { return errors.New("down") }
func (deaf) Close() error                              { return nil }

func FuzzForeignMetadata(f *testing.F) {
	f.Add("u", "name", "order", "ce-id", "1", []byte("{}"))
	f.Add("", "Nats-Msg-Id", "\xff", "NAME", "order", []byte("\x00"))
	f.Add(" ", "traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "ce_type", "order", []byte{})
	f.Fuzz(func(t *testing.T, uuid, key1, value1, key2, value2 string, payload []byte) {
		msg := newMessage(uuid, string(payload), key1, value1, key2, value2)
		before := msg.Copy()
		var got []stored
		config := wminbox.Config{
			PauseBase: -1, Reject: wminbox.Nack{}, Metadata: []string{key1},
			IDs: []wminbox.IDExtractor{
				wminbox.CloudEvents, wminbox.StandardWebhooks, wminbox.NATSMsgID, wminbox.AMQPMessageID,
				wminbox.Metadata(key2), wminbox.Position, wminbox.UUID,
			},
		}
		err := handlerFor(t, remember(&got), config)(msg)
		var reason *wminbox.RejectError
		switch {
		case err == nil && len(got) == 1:
			if strings.TrimSpace(got[0].MessageID) == "" || strings.TrimSpace(got[0].Name) == "" {
				t.Errorf("stored under %+v", got[0])
			}
			if string(got[0].Payload) != string(payload) {
				t.Error("the payload was changed")
			}
		case errors.As(err, &reason) && len(got) == 0 && reason.Reason != wminbox.ReasonPanic:
		default:
			t.Errorf("%v, %d stored", err, len(got))
		}
		if !msg.Equals(before) {
			t.Error("the message was changed")
		}
	})
}
