package mediator_test

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/letterbox-go/letterbox/mediator"
)

// journal notes which handlers ran.
type journal []string

func (j *journal) handler(name string, err error) func(context.Context, accountCredited) error {
	return func(_ context.Context, e accountCredited) error {
		*j = append(*j, name+" "+e.Account)
		return err
	}
}

func (j *journal) expect(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, []string(*j)); diff != "" {
		t.Errorf("what ran (-want +got):\n%s", diff)
	}
}

func TestEventMediator(t *testing.T) {
	t.Parallel()

	t.Run("runs the handlers in the order in which they were bound", func(t *testing.T) {
		t.Parallel()
		var ran journal
		events := mediator.NewEventMap()
		for _, name := range []string{"zeta", "alpha", "mid"} {
			mediator.BindEvent(events, name, ran.handler(name, nil))
		}
		noError(t, mediator.NewEventMediator(events).Send(t.Context(), accountCredited{"a-1"}))
		ran.expect(t, "zeta a-1", "alpha a-1", "mid a-1")
	})

	t.Run("stops at the first error and names the handler", func(t *testing.T) {
		t.Parallel()
		var ran journal
		errDown := errors.New("mail server down")
		events := mediator.NewEventMap()
		mediator.BindEvent(events, "first", ran.handler("first", nil))
		mediator.BindEvent(events, "notify", ran.handler("notify", errDown))
		mediator.BindEvent(events, "last", ran.handler("last", errors.New("too late")))

		err := mediator.NewEventMediator(events).Send(t.Context(), accountCredited{"a-1"})
		equal(t, *as[*mediator.HandlerError](t, err), mediator.HandlerError{Handler: "notify", Err: errDown})
		equal(t, err.Error(), `mediator: event handler "notify": mail server down`)
		equal(t, errors.Is(err, errDown), true)
		ran.expect(t, "first a-1", "notify a-1")
	})

	t.Run("tells that there is no handler", func(t *testing.T) {
		t.Parallel()
		err := mediator.NewEventMediator(mediator.NewEventMap()).Send(t.Context(), &accountCredited{})
		equal(t, *as[*mediator.NoHandlerError](t, err), mediator.NoHandlerError{
			Type: reflect.TypeFor[accountCredited](), Kind: "event",
		})
		equal(t, err.Error(), "mediator: no handler for event mediator_test.accountCredited")
	})

	t.Run("sees what is bound after it was made, but not within a Send under way", func(t *testing.T) {
		t.Parallel()
		var ran journal
		var events mediator.EventMap
		m := mediator.NewEventMediator(&events)
		equal(t, m.Handles(reflect.TypeFor[accountCredited]()), false)
		mediator.BindEvent(&events, "binder", func(context.Context, accountCredited) error {
			return mediator.TryBindEvent(&events, "late", ran.handler("late", nil))
		})
		equal(t, m.Handles(reflect.TypeFor[accountCredited]()), true)

		noError(t, m.Send(t.Context(), accountCredited{"a-1"}))
		ran.expect(t)
		err := m.Send(t.Context(), accountCredited{"a-2"})
		as[*mediator.AlreadyBoundError](t, err) // binder's second run
		equal(t, as[*mediator.HandlerError](t, err).Handler, "binder")
	})

	t.Run("lets a handler's panic through", func(t *testing.T) {
		t.Parallel()
		events := mediator.NewEventMap()
		mediator.BindEvent(events, "boom", func(context.Context, accountCredited) error { panic(errors.New("boom")) })
		m := mediator.NewEventMediator(events)
		equal(t, panicText(t, func() { _ = m.Send(t.Context(), accountCredited{}) }), "boom")
	})

	t.Run("panics on a nil map", func(t *testing.T) {
		t.Parallel()
		equal(t, panicText(t, func() { mediator.NewEventMediator(nil) }), "mediator: NewEventMediator: the map is nil")
	})
}

func TestHandlerNames(t *testing.T) {
	t.Parallel()
	events := mediator.NewEventMap()
	mediator.BindEvent(events, "b", discard[accountCredited])
	mediator.BindEvent(events, "a", discard[*accountCredited])

	t.Run("come in bind order, for the type and its pointer", func(t *testing.T) {
		t.Parallel()
		for _, typ := range []reflect.Type{reflect.TypeFor[accountCredited](), reflect.TypeFor[*accountCredited]()} {
			if diff := cmp.Diff([]string{"b", "a"}, events.HandlerNames(typ)); diff != "" {
				t.Errorf("%v (-want +got):\n%s", typ, diff)
			}
		}
	})

	t.Run("are the caller's own copy", func(t *testing.T) {
		t.Parallel()
		events.HandlerNames(reflect.TypeFor[accountCredited]())[0] = "changed"
		equal(t, events.HandlerNames(reflect.TypeFor[accountCredited]())[0], "b")
	})

	t.Run("are nil for a type without handlers", func(t *testing.T) {
		t.Parallel()
		equal(t, events.HandlerNames(reflect.TypeFor[closeAccount]()) == nil, true)
		equal(t, events.HandlerNames(nil) == nil, true)
	})
}
