// Package amqp has a marshaler for Watermill's AMQP 0-9-1 (RabbitMQ) subscriber that
// keeps what producers without Watermill say about a message.
//
//	config := amqp.NewDurableQueueConfig(url)
//	config.Marshaler = lbamqp.Marshaler{}
//
// Watermill's own drops the message-id property and fails on a header that is not
// a string: the message is requeued at once then, for ever. This one keeps both
// and never fails.
//
// The metadata holds each header under its own name, as text: numbers in decimal,
// times in RFC 3339, bytes as they are, tables and arrays as JSON. Properties are
// kept under reserved keys ([MessageIDKey] and its neighbours), which no header can
// set; an empty property has none.
//
// Everything is safe for concurrent use.
package amqp

import (
	"encoding/json"
	"fmt"
	"time"

	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/letterbox-go/letterbox/transport/wminbox"
)

// The metadata keys of properties.
const (
	MessageIDKey     = wminbox.AMQPMessageIDKey
	TypeKey          = wminbox.ReservedPrefix + "amqp-type"
	AppIDKey         = wminbox.ReservedPrefix + "amqp-app-id"
	CorrelationIDKey = wminbox.ReservedPrefix + "amqp-correlation-id"
	ContentTypeKey   = wminbox.ReservedPrefix + "amqp-content-type"
)

// Marshaler is a Marshaler of watermill-amqp/v3. It marshals as the embedded
// DefaultMarshaler does.
type Marshaler struct{ wmamqp.DefaultMarshaler }

// Unmarshal never fails.
func (m Marshaler) Unmarshal(delivery amqp091.Delivery) (*message.Message, error) {
	uuidKey := m.MessageUUIDHeaderKey
	if uuidKey == "" {
		uuidKey = wmamqp.DefaultMessageUUIDHeaderKey
	}
	msg := message.NewMessage("", delivery.Body)
	for name, value := range delivery.Headers {
		switch {
		case name == uuidKey:
			msg.UUID = text(value)
		case wminbox.Reserved(name):
			// Nobody but us may write these.
		default:
			msg.Metadata.Set(name, text(value))
		}
	}
	for key, value := range map[string]string{
		MessageIDKey:     delivery.MessageId,
		TypeKey:          delivery.Type,
		AppIDKey:         delivery.AppId,
		CorrelationIDKey: delivery.CorrelationId,
		ContentTypeKey:   delivery.ContentType,
	} {
		if value != "" {
			msg.Metadata.Set(key, value)
		}
	}
	return msg, nil
}

// text turns a header value, of any type of the protocol, into a string.
func text(value any) string {
	switch value := value.(type) {
	case nil:
		return ""
	case string:
		return value
	case []byte:
		return string(value)
	case time.Time:
		return value.UTC().Format(time.RFC3339Nano)
	case amqp091.Table, []any:
		if encoded, err := json.Marshal(value); err == nil {
			return string(encoded)
		}
	}
	return fmt.Sprint(value)
}
