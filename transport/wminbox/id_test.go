package wminbox_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/letterbox-go/letterbox/transport/wminbox"
)

func TestEachExtractorFindsItsOwnIDAlone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		extract  wminbox.IDExtractor
		metadata []string
		uuid     string
		want     wminbox.ID // zero: not found
	}{
		{"metadata key", wminbox.Metadata("order-id"), []string{"order-id", "1"}, "u", wminbox.ID{MessageID: "1"}},
		{"metadata key in another case", wminbox.Metadata("order-id"), []string{"Order-Id", "1"}, "u", wminbox.ID{MessageID: "1"}},
		{"metadata key as spelt first", wminbox.Metadata("order-id"), []string{"ORDER-ID", "2", "order-id", "1"}, "u", wminbox.ID{MessageID: "1"}},
		{"metadata key, the same of two spellings each time", wminbox.Metadata("order-id"), []string{"Order-id", "2", "ORDER-ID", "1"}, "u", wminbox.ID{MessageID: "1"}},
		{"metadata key missing", wminbox.Metadata("order-id"), []string{"other", "1"}, "u", wminbox.ID{}},
		{"metadata key blank", wminbox.Metadata("order-id"), []string{"order-id", " \t"}, "u", wminbox.ID{}},
		{"CloudEvents over HTTP and NATS", wminbox.CloudEvents, []string{"ce-id", "1", "ce-source", "/a"}, "u", wminbox.ID{MessageID: "1", Source: "/a"}},
		{"CloudEvents over HTTP, canonical case", wminbox.CloudEvents, []string{"Ce-Id", "1", "Ce-Source", "/a"}, "u", wminbox.ID{MessageID: "1", Source: "/a"}},
		{"CloudEvents over Kafka", wminbox.CloudEvents, []string{"ce_id", "1", "ce_source", "/a"}, "u", wminbox.ID{MessageID: "1", Source: "/a"}},
		{"CloudEvents over AMQP", wminbox.CloudEvents, []string{"cloudEvents:id", "1", "cloudEvents:source", "/a"}, "u", wminbox.ID{MessageID: "1", Source: "/a"}},
		{"CloudEvents over AMQP, JMS-safe", wminbox.CloudEvents, []string{"cloudEvents_id", "1", "cloudEvents_source", "/a"}, "u", wminbox.ID{MessageID: "1", Source: "/a"}},
		{"CloudEvents without a source", wminbox.CloudEvents, []string{"ce-id", "1"}, "u", wminbox.ID{}},
		{"CloudEvents with spellings mixed", wminbox.CloudEvents, []string{"ce-id", "1", "ce_source", "/a"}, "u", wminbox.ID{}},
		{"CloudEvents without an id", wminbox.CloudEvents, []string{"ce-source", "/a"}, "u", wminbox.ID{}},
		{"Standard Webhooks", wminbox.StandardWebhooks, []string{"Webhook-Id", "msg_1"}, "u", wminbox.ID{MessageID: "msg_1"}},
		{"NATS", wminbox.NATSMsgID, []string{"Nats-Msg-Id", "1"}, "u", wminbox.ID{MessageID: "1"}},
		{"AMQP", wminbox.AMQPMessageID, []string{wminbox.AMQPMessageIDKey, "1"}, "u", wminbox.ID{MessageID: "1"}},
		{"UUID", wminbox.UUID, nil, "u", wminbox.ID{MessageID: "u"}},
		{"UUID empty", wminbox.UUID, nil, "", wminbox.ID{}},
		{"UUID blank", wminbox.UUID, nil, "\u00a0 ", wminbox.ID{}},
		{"UUID is not trimmed", wminbox.UUID, nil, " u", wminbox.ID{MessageID: " u"}},
		{"position", wminbox.Position, []string{wminbox.PositionSourceKey, "kafka:orders", wminbox.PositionKey, "0/7"}, "", wminbox.ID{MessageID: "0/7", Source: "kafka:orders"}},
		{"position without its log", wminbox.Position, []string{wminbox.PositionKey, "0/7"}, "", wminbox.ID{}},
		{"position from a producer's own header", wminbox.Position, []string{strings.ToUpper(wminbox.PositionSourceKey), "x", strings.ToUpper(wminbox.PositionKey), "1"}, "", wminbox.ID{}},
		{"content hash", wminbox.ContentHash, nil, "", wminbox.ID{MessageID: "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"}},
		{"scoped", wminbox.Scoped("shop", wminbox.UUID), nil, "u", wminbox.ID{MessageID: "u", Source: "shop"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, ok := c.extract(newMessage(c.uuid, "foo", c.metadata...))
			if !ok {
				got = wminbox.ID{}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
			if ok != (c.want.MessageID != "") {
				t.Errorf("found = %v", ok)
			}
		})
	}
}

func TestTheFirstExtractorThatFindsAnIDWins(t *testing.T) {
	t.Parallel()
	var got []stored
	config := wminbox.Config{Source: "default", Reject: wminbox.Nack{}}
	handle := handlerFor(t, remember(&got), config)
	for _, msg := range []struct {
		uuid     string
		metadata []string
	}{
		{"u", []string{"name", "order", "ce-id", "1", "ce-source", "/a", "Nats-Msg-Id", "n"}},
		{"u", []string{"name", "order", "ce-id", "1", "Nats-Msg-Id", "n"}},
		{"u", []string{"ce-type", "order", "Nats-Msg-Id", " "}},
		{"", []string{"ce-type", "order", "name", "\t", "webhook-id", "w", "Nats-Msg-Id", "n"}},
	} {
		if err := handle(newMessage(msg.uuid, "{}", msg.metadata...)); err != nil {
			t.Fatal(err)
		}
	}
	want := []stored{
		{Source: "/a", MessageID: "1", Name: "order"},
		{Source: "default", MessageID: "n", Name: "order"},
		{Source: "default", MessageID: "u", Name: "order"},
		{Source: "default", MessageID: "w", Name: "order"},
	}
	for i := range got {
		got[i].Payload, got[i].Metadata = nil, ""
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
}

func TestNamesComeFromWhereTheConfigSays(t *testing.T) {
	t.Parallel()
	msg := newMessage("u", "{}", "kind", "k", "name", "n", "ce_type", "c")
	for name, c := range map[string]struct {
		extract wminbox.NameExtractor
		want    string
	}{
		"metadata":            {wminbox.MetadataName("Kind"), "k"},
		"CloudEvents type":    {wminbox.CloudEventsType, "c"},
		"fixed":               {wminbox.FixedName("f"), "f"},
		"missing is no name":  {wminbox.MetadataName("other"), ""},
		"function of payload": {func(m *messageType) (string, bool) { return string(m.Payload), true }, "{}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, ok := c.extract(msg); got != c.want || ok != (c.want != "") {
				t.Errorf("got %q, %v", got, ok)
			}
		})
	}
}
