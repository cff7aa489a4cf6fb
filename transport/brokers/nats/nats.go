// Package nats has unmarshalers for Watermill's NATS subscribers that keep what
// producers without Watermill say about a message.
//
//	subscriber, err := jetstream.NewSubscriber(jetstream.SubscriberConfig{
//		Unmarshaler: nats.JetStream{},
//		...
//	})
//
// [JetStream] is for the subscriber of watermill-nats/v2/pkg/jetstream, [Core] for
// the one of watermill-nats/v2/pkg/nats.
//
// Watermill's own drop Nats-Msg-Id, with which JetStream deduplicates, and fail
// on a header with two values: the message is never acked then, and
// pkg/jetstream crashes. These keep every header and never fail.
//
// # What the subscriber of pkg/nats needs
//
// Pass nats.ManualAck() in its JetStream.SubscribeOptions. Without it the client
// library acks whatever Watermill hands back, and that includes messages which
// were neither acked nor nacked when the subscriber was closed: they are lost.
// Make the durable consumer beforehand: one that the subscription makes is deleted
// when it ends, with all it knew about acks.
//
// # What is kept
//
// The metadata holds each header under its own name; of several values the first
// for names that begin with "Nats-", all of them joined by ", " for others. The
// place in the stream is kept for wminbox.Position: the sequence with the time
// the server stored the message, so that a stream which is deleted and made
// again does not repeat positions.
//
// Everything is safe for concurrent use.
package nats

import (
	"fmt"
	"strings"

	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/letterbox-go/letterbox/transport/wminbox"
)

// JetStream is an Unmarshaler of watermill-nats/v2/pkg/jetstream.
type JetStream struct{}

// Unmarshal never fails.
func (JetStream) Unmarshal(received jetstream.Msg) (*message.Message, error) {
	msg := unmarshal(received.Headers(), received.Data())
	if metadata, err := received.Metadata(); err == nil {
		setPosition(msg, metadata.Domain, metadata.Stream, metadata.Sequence.Stream, metadata.Timestamp.UnixNano())
	}
	return msg, nil
}

// Core is a MarshalerUnmarshaler of watermill-nats/v2/pkg/nats, with or without
// JetStream.
type Core struct{}

// Marshal is that of Watermill's NATSMarshaler.
func (Core) Marshal(topic string, msg *message.Message) (*nats.Msg, error) {
	return new(wmnats.NATSMarshaler).Marshal(topic, msg)
}

// Unmarshal never fails.
func (Core) Unmarshal(received *nats.Msg) (*message.Message, error) {
	msg := unmarshal(received.Header, received.Data)
	if metadata, err := received.Metadata(); err == nil {
		setPosition(msg, metadata.Domain, metadata.Stream, metadata.Sequence.Stream, metadata.Timestamp.UnixNano())
	}
	return msg, nil
}

func unmarshal(headers nats.Header, data []byte) *message.Message {
	msg := message.NewMessage("", data)
	for name, values := range headers {
		switch {
		case len(values) == 0:
		case name == wmnats.WatermillUUIDHdr:
			msg.UUID = values[0]
		case wminbox.Reserved(name):
			// Nobody but us may write these.
		case strings.HasPrefix(name, "Nats-"):
			msg.Metadata.Set(name, values[0])
		default:
			msg.Metadata.Set(name, strings.Join(values, ", "))
		}
	}
	return msg
}

func setPosition(msg *message.Message, domain, stream string, sequence uint64, nanoseconds int64) {
	source := "jetstream:" + stream
	if domain != "" {
		source = "jetstream:" + domain + ":" + stream
	}
	msg.Metadata.Set(wminbox.PositionSourceKey, source)
	msg.Metadata.Set(wminbox.PositionKey, fmt.Sprintf("%d@%d", sequence, nanoseconds))
}
