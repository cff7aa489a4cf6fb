package wminbox

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Metadata keys that the unmarshalers of transport/brokers write. They begin with
// ReservedPrefix; a header of a producer that does is dropped there, so that
// nobody can pretend to be the broker.
const (
	ReservedPrefix = "letterbox-"
	// PositionSourceKey names the log a message was read from, and PositionKey
	// its place there: see Position.
	PositionSourceKey = ReservedPrefix + "position-source"
	PositionKey       = ReservedPrefix + "position"
	// AMQPMessageIDKey is the message-id property of AMQP 0-9-1.
	AMQPMessageIDKey = ReservedPrefix + "amqp-message-id"
)

// ID is what an extractor found in a message.
type ID struct {
	// MessageID is the id; a blank one counts as not found.
	MessageID string
	// Source is the scope in which MessageID is unique. Empty: Config.Source.
	Source string
}

// IDExtractor finds the message id of a message. ok is false when the message
// has none of that kind. It must not change the message.
type IDExtractor func(msg *message.Message) (id ID, ok bool)

// NameExtractor finds the name of a message, as registered in the name map.
type NameExtractor func(msg *message.Message) (name string, ok bool)

// CloudEvents takes ce-id as id and ce-source as source: the two together are
// what CloudEvents 1.0 calls unique, so both must be there. Spellings: ce-id
// (HTTP, NATS), ce_id (Kafka), cloudEvents:id and cloudEvents_id (AMQP).
func CloudEvents(msg *message.Message) (ID, bool) {
	for _, prefix := range cloudEventsPrefixes {
		id, source := lookup(msg.Metadata, prefix+"id"), lookup(msg.Metadata, prefix+"source")
		if !blank(id) && !blank(source) {
			return ID{MessageID: id, Source: source}, true
		}
	}
	return ID{}, false
}

var cloudEventsPrefixes = []string{"ce-", "ce_", "cloudEvents:", "cloudEvents_"}

// StandardWebhooks takes the header webhook-id.
func StandardWebhooks(msg *message.Message) (ID, bool) { return fromMetadata(msg, "webhook-id") }

// NATSMsgID takes the header Nats-Msg-Id, with which JetStream deduplicates.
// Watermill's own unmarshalers drop it.
func NATSMsgID(msg *message.Message) (ID, bool) { return fromMetadata(msg, "Nats-Msg-Id") }

// AMQPMessageID takes the message-id property of AMQP, which only the unmarshaler
// of transport/brokers/amqp keeps.
func AMQPMessageID(msg *message.Message) (ID, bool) { return fromMetadata(msg, AMQPMessageIDKey) }

// UUID takes msg.UUID, which producers with Watermill set.
func UUID(msg *message.Message) (ID, bool) {
	return ID{MessageID: msg.UUID}, !blank(msg.UUID)
}

// Metadata returns an extractor that takes the value under key, found without
// regard to case.
func Metadata(key string) IDExtractor {
	return func(msg *message.Message) (ID, bool) { return fromMetadata(msg, key) }
}

// Position takes the place in the broker's log: topic, partition and offset of
// Kafka, stream and sequence of JetStream, as the unmarshalers of
// transport/brokers keep them. It tells redeliveries of one record from other
// records, but a producer that sends twice makes two records: prefer an id of
// the producer where there is one, and put Position last.
func Position(msg *message.Message) (ID, bool) {
	source, position := msg.Metadata[PositionSourceKey], msg.Metadata[PositionKey]
	return ID{MessageID: position, Source: source}, !blank(source) && !blank(position)
}

// ContentHash takes the SHA-256 of the payload. Two messages with the same bytes
// become one: only for payloads that cannot legitimately repeat. It is never
// part of a default.
func ContentHash(msg *message.Message) (ID, bool) {
	sum := sha256.Sum256(msg.Payload)
	return ID{MessageID: "sha256:" + hex.EncodeToString(sum[:])}, true
}

// Scoped returns an extractor whose ids have that source, for lists whose
// extractors could give the same id to different messages.
func Scoped(source string, extractor IDExtractor) IDExtractor {
	return func(msg *message.Message) (ID, bool) {
		id, ok := extractor(msg)
		id.Source = source
		return id, ok
	}
}

// MetadataName returns an extractor that takes the value under key, found
// without regard to case. Watermill's cqrs component writes "name".
func MetadataName(key string) NameExtractor {
	return func(msg *message.Message) (string, bool) {
		name := lookup(msg.Metadata, key)
		return name, !blank(name)
	}
}

// CloudEventsType takes ce-type, in the spellings of CloudEvents.
func CloudEventsType(msg *message.Message) (string, bool) {
	for _, prefix := range cloudEventsPrefixes {
		if name := lookup(msg.Metadata, prefix+"type"); !blank(name) {
			return name, true
		}
	}
	return "", false
}

// FixedName gives every message the same name.
func FixedName(name string) NameExtractor {
	return func(*message.Message) (string, bool) { return name, true }
}

func fromMetadata(msg *message.Message, key string) (ID, bool) {
	id := lookup(msg.Metadata, key)
	return ID{MessageID: id}, !blank(id)
}

// lookup finds key as it is spelt, else without regard to case: brokers and
// proxies change the case of headers. Of several spellings the first in byte
// order wins, so that a redelivery finds the same.
func lookup(metadata message.Metadata, key string) string {
	if value, ok := metadata[key]; ok {
		return value
	}
	found, value := "", ""
	for spelling, candidate := range metadata {
		if strings.EqualFold(spelling, key) && (found == "" || spelling < found) {
			found, value = spelling, candidate
		}
	}
	return value
}

// blank reports that s is no id and no name: nothing, or white space only.
func blank(s string) bool { return strings.TrimSpace(s) == "" }

// Reserved reports that only an unmarshaler may write this metadata key, however
// it is spelt.
func Reserved(key string) bool {
	return len(key) >= len(ReservedPrefix) && strings.EqualFold(key[:len(ReservedPrefix)], ReservedPrefix)
}
