// Package wmcqrs lets handlers written for Watermill's cqrs component serve an inbox as
// they are, without its processors.
//
// # Quick start
//
//	marshaler := cqrs.JSONMarshaler{GenerateName: cqrs.StructName}
//	wmcqrs.Register[BookRoom](names, marshaler)
//	err := wmcqrs.BindCommands(requests, bookRoomHandler, cancelRoomHandler)
//	err = wmcqrs.BindEvents(events, notifyGuest, updateReport)
//
// Messages that a cqrs bus publishes arrive through package wminbox: their name is the
// metadata "name", which is what Register registers.
//
// # What is the same, and what is not
//
// A handler gets a pointer to the message, and its context carries the transaction of
// the inbox: inbox.DB(ctx, db). A command has one handler, an event any number, all of
// them in one transaction. cqrs.OriginalMessageFromCtx returns nil: the message is a row
// by then; inbox.FromContext says what is known of it.
//
// # Concurrency
//
// Binding is safe at any time, and handlers are called from many goroutines, as
// Watermill calls them.
package wmcqrs

import (
	"context"
	"fmt"
	"reflect"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/mediator"
)

// BindCommands binds each handler to the type of its NewCommand. It stops at the first
// error: a type that has a handler already is a *mediator.AlreadyBoundError.
func BindCommands(m *mediator.RequestMap, handlers ...cqrs.CommandHandler) error {
	for i, handler := range handlers {
		if handler == nil {
			return fmt.Errorf("wmcqrs: command handler %d is nil", i)
		}
		typ := reflect.TypeOf(handler.NewCommand())
		if err := checkPointer(handler.HandlerName(), typ); err != nil {
			return err
		}
		err := m.TryBindType(typ, func(ctx context.Context, command any) (any, error) {
			return nil, handler.Handle(ctx, asPointer(command))
		})
		if err != nil {
			return fmt.Errorf("wmcqrs: command handler %q: %w", handler.HandlerName(), err)
		}
	}
	return nil
}

// BindEvents binds each handler to the type of its NewEvent, under its HandlerName, in
// the order given. It stops at the first error: a name that an event type has already is
// a *mediator.AlreadyBoundError.
func BindEvents(m *mediator.EventMap, handlers ...cqrs.EventHandler) error {
	for i, handler := range handlers {
		if handler == nil {
			return fmt.Errorf("wmcqrs: event handler %d is nil", i)
		}
		typ := reflect.TypeOf(handler.NewEvent())
		if err := checkPointer(handler.HandlerName(), typ); err != nil {
			return err
		}
		err := m.TryBindType(typ, handler.HandlerName(), func(ctx context.Context, event any) error {
			return handler.Handle(ctx, asPointer(event))
		})
		if err != nil {
			return fmt.Errorf("wmcqrs: event handler %q: %w", handler.HandlerName(), err)
		}
	}
	return nil
}

// checkPointer insists on what a marshaler could fill.
func checkPointer(handler string, typ reflect.Type) error {
	if typ == nil || typ.Kind() != reflect.Pointer {
		return fmt.Errorf("wmcqrs: handler %q: its messages are %v, not pointers", handler, typ)
	}
	return nil
}

// asPointer is the message as handlers of cqrs expect it.
func asPointer(msg any) any {
	v := reflect.ValueOf(msg)
	if v.Kind() == reflect.Pointer {
		return msg
	}
	p := reflect.New(v.Type())
	p.Elem().Set(v)
	return p.Interface()
}

// Register registers T in the name map as the marshaler sees it: under its name for T,
// with its encoding. Panics where inbox.RegisterWith does.
//
// Watermill's default name is the Go type with its package; renaming either would strand
// stored rows. Give the marshaler a GenerateName of your own, or keep the old name in
// FormerNames with inbox.RegisterWith and Codec.
func Register[T any](names *inbox.NameMap, marshaler cqrs.CommandEventMarshaler) {
	inbox.RegisterWith[T](names, inbox.Registration{Name: marshaler.Name(new(T)), Codec: Codec(marshaler)})
}

// Codec makes a cqrs marshaler an inbox codec. It sees the payload only: a marshaler that
// needs metadata of the original message to decode cannot be used.
func Codec(marshaler cqrs.CommandEventMarshaler) inbox.Codec { return codec{marshaler} }

type codec struct{ marshaler cqrs.CommandEventMarshaler }

func (c codec) Encode(msg any) ([]byte, error) {
	encoded, err := c.marshaler.Marshal(msg)
	if err != nil {
		return nil, err
	}
	return encoded.Payload, nil
}

func (c codec) Decode(payload []byte, msg any) error {
	received := message.NewMessage("", payload)
	received.Metadata.Set("name", c.marshaler.Name(msg))
	return c.marshaler.Unmarshal(received, msg)
}
