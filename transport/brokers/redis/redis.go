// Package redis has an unmarshaler for Watermill's Redis Streams subscriber that takes
// entries of any producer.
//
//	subscriber, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{
//		Unmarshaller: lbredis.Unmarshaller{},
//		...
//	}, logger)
//
// Watermill's own refuses an entry without its UUID field, and such an error ends
// the subscription. This one never fails: an entry that Watermill wrote is read as
// Watermill does; of any other, the field [Unmarshaller.PayloadField] is the payload
// and the rest is metadata. Without that field the payload is a JSON object of all
// fields, in the order of their names, and all are metadata as well.
//
// The id of the entry in the stream does not reach unmarshalers, so there is no
// wminbox.Position: a foreign producer has to send an id in a field.
//
// Everything is safe for concurrent use.
package redis

import (
	"encoding/json"
	"fmt"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/letterbox-go/letterbox/transport/wminbox"
)

// Unmarshaller is a MarshallerUnmarshaller of watermill-redisstream. It marshals as
// the embedded DefaultMarshallerUnmarshaller does. The zero value is ready to use.
type Unmarshaller struct {
	redisstream.DefaultMarshallerUnmarshaller
	// PayloadField is the field with the payload of foreign entries. Default
	// "payload".
	PayloadField string
}

// Unmarshal never fails.
func (u Unmarshaller) Unmarshal(values map[string]any) (*message.Message, error) {
	if msg := u.watermill(values); msg != nil {
		dropReserved(msg)
		return msg, nil
	}
	field := u.PayloadField
	if field == "" {
		field = "payload"
	}
	msg := message.NewMessage("", nil)
	texts := make(map[string]string, len(values))
	for name, value := range values {
		texts[name] = text(value)
		if name != field {
			msg.Metadata.Set(name, texts[name])
		}
	}
	if payload, ok := texts[field]; ok {
		msg.Payload = []byte(payload)
	} else {
		msg.Payload, _ = json.Marshal(texts) // a map of strings cannot fail
	}
	dropReserved(msg)
	return msg, nil
}

// watermill reads what Watermill wrote, nil when it did not.
func (u Unmarshaller) watermill(values map[string]any) (msg *message.Message) {
	if _, ok := values[redisstream.UUIDHeaderKey]; !ok {
		return nil
	}
	defer func() {
		if recover() != nil { // the decoder of the metadata, or a value that is no string
			msg = nil
		}
	}()
	msg, err := u.DefaultMarshallerUnmarshaller.Unmarshal(values)
	if err != nil {
		return nil
	}
	if msg.Metadata == nil {
		msg.Metadata = message.Metadata{}
	}
	return msg
}

// dropReserved removes what only unmarshalers may write.
func dropReserved(msg *message.Message) {
	for name := range msg.Metadata {
		if wminbox.Reserved(name) {
			delete(msg.Metadata, name)
		}
	}
}

func text(value any) string {
	switch value := value.(type) {
	case string:
		return value
	case []byte:
		return string(value)
	}
	return fmt.Sprint(value)
}
