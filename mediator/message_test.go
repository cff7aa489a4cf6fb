package mediator_test

import (
	"context"
	"reflect"
	"sync"
	"testing"

	"github.com/letterbox-go/letterbox/mediator"
)

// locked stands for a protobuf message: it must not be copied.
type locked struct {
	sync.Mutex
	body string
}

func TestPointersAndValues(t *testing.T) {
	t.Parallel()

	t.Run("a pointer reaches its handler as the same pointer", func(t *testing.T) {
		t.Parallel()
		requests := mediator.NewRequestMap()
		mediator.BindRequest(requests, func(_ context.Context, l *locked) (*locked, error) { return l, nil })
		sent := &locked{body: "x"}
		got, err := mediator.Send[*locked](t.Context(), mediator.NewRequestMediator(requests), sent)
		noError(t, err)
		equal(t, got, sent)
	})

	t.Run("a pointer reaches a handler of values", func(t *testing.T) {
		t.Parallel()
		requests := mediator.NewRequestMap()
		mediator.BindRequest(requests, credit)
		got, err := mediator.Send[receipt](t.Context(), mediator.NewRequestMediator(requests), &creditAccount{Cents: 5})
		noError(t, err)
		equal(t, got, receipt{Balance: 105})
	})

	t.Run("a value reaches a handler of pointers", func(t *testing.T) {
		t.Parallel()
		requests := mediator.NewRequestMap()
		mediator.BindRequest(requests, func(_ context.Context, c *creditAccount) (int, error) { return c.Cents, nil })
		got, err := mediator.Send[int](t.Context(), mediator.NewRequestMediator(requests), creditAccount{Cents: 5})
		noError(t, err)
		equal(t, got, 5)
	})

	t.Run("a value reaches each handler of pointers as a copy of its own", func(t *testing.T) {
		t.Parallel()
		events := mediator.NewEventMap()
		for _, name := range []string{"one", "two"} {
			mediator.BindEvent(events, name, func(_ context.Context, e *accountCredited) error {
				equal(t, e.Account, "a-1")
				e.Account = "changed by " + name
				return nil
			})
		}
		noError(t, mediator.NewEventMediator(events).Send(t.Context(), accountCredited{"a-1"}))
	})

	t.Run("messages need not be structs", func(t *testing.T) {
		t.Parallel()
		type tags []string
		requests := mediator.NewRequestMap()
		mediator.BindRequest(requests, func(_ context.Context, tt tags) (int, error) { return len(tt), nil })
		m := mediator.NewRequestMediator(requests)
		for want, sent := range []any{tags(nil), &tags{"a"}, tags{"a", "b"}} {
			got, err := mediator.Send[int](t.Context(), m, sent)
			noError(t, err)
			equal(t, got, want)
		}
	})

	t.Run("types that cannot be bound have no handler", func(t *testing.T) {
		t.Parallel()
		requests := mediator.NewRequestMap()
		mediator.BindRequest(requests, credit)
		m := mediator.NewRequestMediator(requests)
		p := &creditAccount{}
		for _, sent := range []any{&p, handle(p), new(any)} {
			_, err := m.Send(t.Context(), sent)
			equal(t, as[*mediator.NoHandlerError](t, err).Type, reflect.TypeOf(sent))
		}
	})
}

func TestNilMessages(t *testing.T) {
	t.Parallel()
	requests := mediator.NewRequestMap()
	mediator.BindRequest(requests, credit)
	mediator.BindCommand(requests, discard[*closeAccount])
	events := mediator.NewEventMap()
	mediator.BindEvent(events, "value", discard[accountCredited])
	mediator.BindEvent(events, "pointer", discard[*accountCredited])

	sendRequest := func(message any) error {
		_, err := mediator.NewRequestMediator(requests, unreachable).Send(context.Background(), message)
		return err
	}
	sendEvent := func(message any) error {
		return mediator.NewEventMediator(events, unreachable).Send(context.Background(), message)
	}

	for _, tt := range []struct {
		name string
		send func(any) error
		sent any
		want mediator.NilMessageError
		text string
	}{
		{"an untyped nil request", sendRequest, nil, mediator.NilMessageError{Kind: "request"}, "mediator: nil request"},
		{"an untyped nil event", sendEvent, nil, mediator.NilMessageError{Kind: "event"}, "mediator: nil event"},
		{
			"a nil pointer to a handler of values", sendRequest, (*creditAccount)(nil),
			mediator.NilMessageError{Kind: "request", Type: reflect.TypeFor[*creditAccount]()},
			"mediator: nil request *mediator_test.creditAccount",
		},
		{
			"a nil pointer to a handler of pointers", sendRequest, (*closeAccount)(nil),
			mediator.NilMessageError{Kind: "request", Type: reflect.TypeFor[*closeAccount]()},
			"mediator: nil request *mediator_test.closeAccount",
		},
		{
			"a nil pointer to event handlers", sendEvent, (*accountCredited)(nil),
			mediator.NilMessageError{Kind: "event", Type: reflect.TypeFor[*accountCredited]()},
			"mediator: nil event *mediator_test.accountCredited",
		},
	} {
		t.Run(tt.name+" is refused before any middleware runs", func(t *testing.T) {
			t.Parallel()
			err := tt.send(tt.sent)
			equal(t, *as[*mediator.NilMessageError](t, err), tt.want)
			equal(t, err.Error(), tt.text)
		})
	}
}

func unreachable(context.Context, any, mediator.Next) (any, error) {
	panic("the middleware ran")
}

func TestTypeOf(t *testing.T) {
	t.Parallel()
	p := &creditAccount{}
	for _, tt := range []struct {
		name    string
		message any
		want    reflect.Type
	}{
		{"of a value is its type", creditAccount{}, reflect.TypeFor[creditAccount]()},
		{"of a pointer is the type it points to", p, reflect.TypeFor[creditAccount]()},
		{"of a nil pointer is the type it points to", (*creditAccount)(nil), reflect.TypeFor[creditAccount]()},
		{"of a pointer to a pointer is that type itself", &p, reflect.TypeFor[**creditAccount]()},
		{"of a pointer to an interface is that type itself", new(any), reflect.TypeFor[*any]()},
		{"of a named pointer is that type itself", handle(p), reflect.TypeFor[handle]()},
		{"of nil is nil", nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			equal(t, mediator.TypeOf(tt.message), tt.want)
		})
	}
}

func TestHandles(t *testing.T) {
	t.Parallel()
	requests := mediator.NewRequestMap()
	mediator.BindCommand(requests, discard[*closeAccount])
	mediator.BindCommand(requests, discard[creditAccount])
	events := mediator.NewEventMap()
	mediator.BindEvent(events, "one", discard[*closeAccount])
	mediator.BindEvent(events, "one", discard[creditAccount])

	for name, handles := range map[string]func(reflect.Type) bool{
		"RequestMap": requests.Handles, "RequestMediator": mediator.NewRequestMediator(requests).Handles,
		"EventMap": events.Handles, "EventMediator": mediator.NewEventMediator(events).Handles,
	} {
		t.Run(name+" knows a type by its value and its pointer", func(t *testing.T) {
			t.Parallel()
			equal(t, handles(reflect.TypeFor[closeAccount]()), true)
			equal(t, handles(reflect.TypeFor[*closeAccount]()), true)
			equal(t, handles(reflect.TypeFor[creditAccount]()), true)
			equal(t, handles(reflect.TypeFor[*creditAccount]()), true)
			equal(t, handles(reflect.TypeFor[**creditAccount]()), false)
			equal(t, handles(reflect.TypeFor[handle]()), false)
			equal(t, handles(reflect.TypeFor[accountCredited]()), false)
			equal(t, handles(nil), false)
		})
	}
}
