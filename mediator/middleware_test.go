package mediator_test

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/letterbox-go/letterbox/mediator"
)

// around is a middleware that notes when it is entered and left.
func (j *journal) around(name string) mediator.Middleware {
	return func(ctx context.Context, message any, next mediator.Next) (any, error) {
		*j = append(*j, name+" in")
		defer func() { *j = append(*j, name+" out") }()
		return next(ctx, message)
	}
}

func TestMiddleware(t *testing.T) {
	t.Parallel()
	requests := mediator.NewRequestMap()
	mediator.BindRequest(requests, credit)
	mediator.BindRequest(requests, func(ctx context.Context, c closeAccount) (string, error) {
		tenant, _ := ctx.Value(tenantKey{}).(string)
		return tenant + " closed " + c.Account, nil
	})

	t.Run("wraps in the order given, the first outermost", func(t *testing.T) {
		t.Parallel()
		var ran journal
		m := mediator.NewRequestMediator(requests, ran.around("a"), ran.around("b"), ran.around("c"))
		_, err := m.Send(t.Context(), creditAccount{})
		noError(t, err)
		ran.expect(t, "a in", "b in", "c in", "c out", "b out", "a out")
	})

	t.Run("wraps an event once, around all of its handlers", func(t *testing.T) {
		t.Parallel()
		var ran journal
		events := mediator.NewEventMap()
		mediator.BindEvent(events, "one", ran.handler("one", nil))
		mediator.BindEvent(events, "two", ran.handler("two", nil))
		noError(t, mediator.NewEventMediator(events, ran.around("a"), ran.around("b")).Send(t.Context(), accountCredited{"x"}))
		ran.expect(t, "a in", "b in", "one x", "two x", "b out", "a out")
	})

	t.Run("is not changed by changing the slice it came from", func(t *testing.T) {
		t.Parallel()
		var ran journal
		middleware := []mediator.Middleware{ran.around("a")}
		m := mediator.NewRequestMediator(requests, middleware...)
		middleware[0] = nil
		_, err := m.Send(t.Context(), creditAccount{})
		noError(t, err)
		ran.expect(t, "a in", "a out")
	})

	t.Run("may replace context, message and response", func(t *testing.T) {
		t.Parallel()
		m := mediator.NewRequestMediator(requests, func(ctx context.Context, message any, next mediator.Next) (any, error) {
			c := message.(creditAccount)
			got, err := next(context.WithValue(ctx, tenantKey{}, "t-1"), &closeAccount{Account: c.Account})
			return "[" + got.(string) + "]", err
		})
		got, err := mediator.Send[string](t.Context(), m, creditAccount{Account: "a-1"})
		noError(t, err)
		equal(t, got, "[t-1 closed a-1]")
	})

	t.Run("may return without calling next", func(t *testing.T) {
		t.Parallel()
		errClosed := errors.New("shop closed")
		stop := func(context.Context, any, mediator.Next) (any, error) { return receipt{Balance: 1}, errClosed }
		got, err := mediator.NewRequestMediator(requests, stop, unreachable).Send(t.Context(), creditAccount{})
		equal(t, err, errClosed)
		equal[any](t, got, receipt{Balance: 1})
		equal(t, mediator.NewEventMediator(mediator.NewEventMap(), stop).Send(t.Context(), accountCredited{}), errClosed)
	})

	t.Run("may call next again, which runs all handlers again", func(t *testing.T) {
		t.Parallel()
		var ran journal
		events := mediator.NewEventMap()
		mediator.BindEvent(events, "one", ran.handler("one", nil))
		mediator.BindEvent(events, "two", ran.handler("two", errors.New("down")))
		retry := func(ctx context.Context, message any, next mediator.Next) (any, error) {
			if got, err := next(ctx, message); err == nil {
				return got, nil
			}
			return next(ctx, message)
		}
		as[*mediator.HandlerError](t, mediator.NewEventMediator(events, retry, ran.around("a")).Send(t.Context(), accountCredited{"x"}))
		ran.expect(t, "a in", "one x", "two x", "a out", "a in", "one x", "two x", "a out")
	})

	t.Run("gets a nil response to an event", func(t *testing.T) {
		t.Parallel()
		events := mediator.NewEventMap()
		mediator.BindEvent(events, "ignore", ignore)
		m := mediator.NewEventMediator(events, func(ctx context.Context, message any, next mediator.Next) (any, error) {
			got, err := next(ctx, message)
			equal(t, got, nil)
			return "discarded", err
		})
		noError(t, m.Send(t.Context(), accountCredited{}))
	})
}

type tenantKey struct{}

func TestMiddlewareSeesWhatDispatchRefuses(t *testing.T) {
	t.Parallel()
	requests, events := mediator.NewRequestMap(), mediator.NewEventMap()

	t.Run("a message without a handler", func(t *testing.T) {
		t.Parallel()
		var ran journal
		_, err := mediator.NewRequestMediator(requests, ran.around("request")).Send(t.Context(), creditAccount{})
		as[*mediator.NoHandlerError](t, err)
		err = mediator.NewEventMediator(events, ran.around("event")).Send(t.Context(), accountCredited{})
		as[*mediator.NoHandlerError](t, err)
		ran.expect(t, "request in", "request out", "event in", "event out")
	})

	t.Run("a nil that a middleware handed on", func(t *testing.T) {
		t.Parallel()
		lose := func(ctx context.Context, _ any, next mediator.Next) (any, error) { return next(ctx, nil) }
		_, err := mediator.NewRequestMediator(requests, lose).Send(t.Context(), creditAccount{})
		equal(t, *as[*mediator.NilMessageError](t, err), mediator.NilMessageError{Kind: "request"})

		blank := func(ctx context.Context, _ any, next mediator.Next) (any, error) {
			return next(ctx, (*accountCredited)(nil))
		}
		err = mediator.NewEventMediator(events, blank).Send(t.Context(), accountCredited{})
		equal(t, as[*mediator.NilMessageError](t, err).Type, reflect.TypeFor[*accountCredited]())
	})
}

func TestNilMiddlewareIsRefused(t *testing.T) {
	t.Parallel()
	pass := func(ctx context.Context, message any, next mediator.Next) (any, error) { return next(ctx, message) }
	equal(t, panicText(t, func() { mediator.NewRequestMediator(mediator.NewRequestMap(), pass, nil) }),
		"mediator: NewRequestMediator: middleware[1] is nil")
	equal(t, panicText(t, func() { mediator.NewEventMediator(mediator.NewEventMap(), nil, pass) }),
		"mediator: NewEventMediator: middleware[0] is nil")
}
