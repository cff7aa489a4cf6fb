// Package protocodec stores messages that are Protocol Buffers as what they are:
// the binary encoding. It is a package of its own, so that applications without
// Protocol Buffers need not compile them.
//
//	inbox.RegisterWith[*pb.CreditAccount](names, inbox.Registration{
//		Name:  "credit_account",
//		Codec: protocodec.Codec{},
//	})
//
// # Guarantee
//
// A value is always encoded to the same bytes by the same build of a program, so
// that a repeat is a duplicate. Other builds may encode it differently
// (https://protobuf.dev/programming-guides/serialization-not-canonical/): where
// old and new acceptors, or senders in several languages, repeat each other's
// messages, set Entry.Fingerprint from the bytes received, or store those with
// inbox.Raw. Unknown fields survive.
package protocodec

import (
	"fmt"
	"reflect"

	"google.golang.org/protobuf/proto"

	"github.com/letterbox-go/letterbox/inbox"
)

// Codec is the binary encoding of Protocol Buffers, for types whose pointers are
// proto.Message. The zero value is ready to use.
type Codec struct{}

var _ inbox.Codec = Codec{}

// Encode returns the wire format, with maps in a fixed order. A message without
// its required fields is an error, and so is a type that is no proto.Message.
func (Codec) Encode(message any) ([]byte, error) {
	m, err := asProto(message)
	if err != nil {
		return nil, err
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}

// Decode fills message. Bytes that are not the wire format of its type are an error.
func (Codec) Decode(payload []byte, message any) error {
	m, err := asProto(message)
	if err != nil {
		return err
	}
	return proto.Unmarshal(payload, m)
}

// asProto takes *T, and T itself, which a handler may have copied against the
// advice of its package.
func asProto(message any) (proto.Message, error) {
	if m, ok := message.(proto.Message); ok {
		return m, nil
	}
	if v := reflect.ValueOf(message); v.IsValid() && v.Kind() != reflect.Pointer {
		pointer := reflect.New(v.Type())
		pointer.Elem().Set(v)
		if m, ok := pointer.Interface().(proto.Message); ok {
			return m, nil
		}
	}
	return nil, fmt.Errorf("protocodec: %T is no proto.Message", message)
}
