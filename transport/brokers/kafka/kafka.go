// Package kafka has an unmarshaler for Watermill's Kafka subscriber that keeps where a
// record stood in its log.
//
//	subscriber, err := kafka.NewSubscriber(kafka.SubscriberConfig{
//		Unmarshaler: lbkafka.Unmarshaler{},
//		...
//	}, logger)
//
// The metadata holds each header under its own name; of several with one name the
// last, as Watermill has it. The record's key is kept under [KeyKey]. Topic,
// partition and offset are kept for wminbox.Position, together with the record's
// timestamp, so that a topic which is deleted and made again does not repeat
// positions. It never fails.
//
// Everything is safe for concurrent use.
package kafka

import (
	"fmt"

	"github.com/IBM/sarama"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/letterbox-go/letterbox/transport/wminbox"
)

// KeyKey is the metadata key of the record's key.
const KeyKey = wminbox.ReservedPrefix + "kafka-key"

// Unmarshaler is a MarshalerUnmarshaler of watermill-kafka/v3. It marshals as the
// embedded DefaultMarshaler does.
type Unmarshaler struct{ wmkafka.DefaultMarshaler }

// Unmarshal never fails.
func (Unmarshaler) Unmarshal(record *sarama.ConsumerMessage) (*message.Message, error) {
	msg := message.NewMessage("", record.Value)
	for _, header := range record.Headers {
		if header == nil {
			continue
		}
		name := string(header.Key)
		switch {
		case name == wmkafka.UUIDHeaderKey:
			msg.UUID = string(header.Value)
		case wminbox.Reserved(name):
			// Nobody but us may write these.
		default:
			msg.Metadata.Set(name, string(header.Value))
		}
	}
	if len(record.Key) > 0 {
		msg.Metadata.Set(KeyKey, string(record.Key))
	}
	msg.Metadata.Set(wminbox.PositionSourceKey, "kafka:"+record.Topic)
	msg.Metadata.Set(wminbox.PositionKey, fmt.Sprintf("%d/%d@%d", record.Partition, record.Offset, record.Timestamp.UnixMilli()))
	return msg, nil
}
