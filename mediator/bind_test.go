package mediator_test

import (
	"context"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/letterbox-go/letterbox/mediator"
)

// refused are the binds that must not happen, once as a panic and once as an error.
var refused = []struct {
	name  string
	bind  func()
	try   func() error
	wants string
}{
	{
		"a request on a nil map",
		func() { mediator.BindRequest(nil, credit) },
		func() error { return mediator.TryBindRequest(nil, credit) },
		"mediator: bind request mediator_test.creditAccount: the map is nil",
	},
	{
		"a command on a nil map",
		func() { mediator.BindCommand(nil, closeIt) },
		func() error { return mediator.TryBindCommand(nil, closeIt) },
		"mediator: bind request mediator_test.closeAccount: the map is nil",
	},
	{
		"an event on a nil map",
		func() { mediator.BindEvent(nil, "ignore", ignore) },
		func() error { return mediator.TryBindEvent(nil, "ignore", ignore) },
		"mediator: bind event mediator_test.accountCredited: the map is nil",
	},
	{
		"a nil request handler",
		func() { mediator.BindRequest[creditAccount, receipt](mediator.NewRequestMap(), nil) },
		func() error { return mediator.TryBindRequest[creditAccount, receipt](mediator.NewRequestMap(), nil) },
		"mediator: bind request mediator_test.creditAccount: the handler is nil",
	},
	{
		"a nil command handler",
		func() { mediator.BindCommand[closeAccount](mediator.NewRequestMap(), nil) },
		func() error { return mediator.TryBindCommand[closeAccount](mediator.NewRequestMap(), nil) },
		"mediator: bind request mediator_test.closeAccount: the handler is nil",
	},
	{
		"a nil event handler",
		func() { mediator.BindEvent[accountCredited](mediator.NewEventMap(), "ignore", nil) },
		func() error { return mediator.TryBindEvent[accountCredited](mediator.NewEventMap(), "ignore", nil) },
		"mediator: bind event mediator_test.accountCredited: the handler is nil",
	},
	{
		"an event handler without a name",
		func() { mediator.BindEvent(mediator.NewEventMap(), "", ignore) },
		func() error { return mediator.TryBindEvent(mediator.NewEventMap(), "", ignore) },
		"mediator: bind event mediator_test.accountCredited: the handler's name is empty",
	},
	{
		"an interface as a command",
		func() { mediator.BindCommand(mediator.NewRequestMap(), discard[auditor]) },
		func() error { return mediator.TryBindCommand(mediator.NewRequestMap(), discard[auditor]) },
		"mediator: bind request mediator_test.auditor: it is an interface; bind the concrete types",
	},
	{
		"an interface as an event",
		func() { mediator.BindEvent(mediator.NewEventMap(), "all", discard[any]) },
		func() error { return mediator.TryBindEvent(mediator.NewEventMap(), "all", discard[any]) },
		"mediator: bind event interface {}: it is an interface; bind the concrete types",
	},
	{
		"a pointer to a pointer",
		func() { mediator.BindCommand(mediator.NewRequestMap(), discard[**closeAccount]) },
		func() error { return mediator.TryBindCommand(mediator.NewRequestMap(), discard[**closeAccount]) },
		"mediator: bind request **mediator_test.closeAccount: " + pointerRule,
	},
	{
		"a pointer to an interface",
		func() { mediator.BindEvent(mediator.NewEventMap(), "all", discard[*auditor]) },
		func() error { return mediator.TryBindEvent(mediator.NewEventMap(), "all", discard[*auditor]) },
		"mediator: bind event *mediator_test.auditor: " + pointerRule,
	},
	{
		"a named pointer type",
		func() { mediator.BindCommand(mediator.NewRequestMap(), discard[handle]) },
		func() error { return mediator.TryBindCommand(mediator.NewRequestMap(), discard[handle]) },
		"mediator: bind request mediator_test.handle: " + pointerRule,
	},
}

const pointerRule = "it is a pointer to a pointer or to an interface, or a named pointer type; bind T or *T"

func discard[M any](context.Context, M) error { return nil }

func TestBindRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range refused {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			equal(t, panicText(t, tt.bind), tt.wants)
			err := tt.try()
			if err == nil {
				t.Fatal("the Try function returned nil")
			}
			equal(t, err.Error(), tt.wants)
		})
	}
}

func TestSecondBind(t *testing.T) {
	t.Parallel()

	t.Run("of a request type is refused, and the first handler stays", func(t *testing.T) {
		t.Parallel()
		m := mediator.NewRequestMap()
		mediator.BindRequest(m, credit)
		second := func(context.Context, creditAccount) error { panic("the second handler ran") }

		const want = "mediator: bind request mediator_test.creditAccount: it has a handler already"
		equal(t, panicText(t, func() { mediator.BindCommand(m, second) }), want)
		equal(t, panicText(t, func() { mediator.BindRequest(m, credit) }), want)
		e := as[*mediator.AlreadyBoundError](t, mediator.TryBindCommand(m, second))
		equal(t, *e, mediator.AlreadyBoundError{Type: reflect.TypeFor[creditAccount](), Kind: "request"})

		got, err := mediator.NewRequestMediator(m).Send(t.Context(), creditAccount{Cents: 5})
		noError(t, err)
		equal[any](t, got, receipt{Balance: 105})
	})

	t.Run("of a request type as a pointer is a second bind", func(t *testing.T) {
		t.Parallel()
		m := mediator.NewRequestMap()
		mediator.BindCommand(m, discard[*creditAccount])
		e := as[*mediator.AlreadyBoundError](t, mediator.TryBindRequest(m, credit))
		equal(t, e.Type, reflect.TypeFor[creditAccount]())

		mediator.BindCommand(m, discard[closeAccount])
		e = as[*mediator.AlreadyBoundError](t, mediator.TryBindCommand(m, discard[*closeAccount]))
		equal(t, e.Type, reflect.TypeFor[closeAccount]())
	})

	t.Run("of an event handler's name is refused, as value and as pointer", func(t *testing.T) {
		t.Parallel()
		m := mediator.NewEventMap()
		mediator.BindEvent(m, "notify", ignore)

		const want = `mediator: bind event mediator_test.accountCredited: it has a handler named "notify" already`
		equal(t, panicText(t, func() { mediator.BindEvent(m, "notify", ignore) }), want)
		e := as[*mediator.AlreadyBoundError](t, mediator.TryBindEvent(m, "notify", discard[*accountCredited]))
		equal(t, *e, mediator.AlreadyBoundError{Type: reflect.TypeFor[accountCredited](), Kind: "event", Handler: "notify"})

		got := m.HandlerNames(reflect.TypeFor[accountCredited]())
		if diff := cmp.Diff([]string{"notify"}, got); diff != "" {
			t.Errorf("handlers (-want +got):\n%s", diff)
		}
	})

	t.Run("of a name under another event type is fine", func(t *testing.T) {
		t.Parallel()
		m := mediator.NewEventMap()
		mediator.BindEvent(m, "notify", discard[accountCredited])
		noError(t, mediator.TryBindEvent(m, "notify", discard[closeAccount]))
	})
}
