package mediator_test

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/letterbox-go/letterbox/mediator"
)

func TestRequestMediator(t *testing.T) {
	t.Parallel()

	t.Run("returns the handler's response and error as they are", func(t *testing.T) {
		t.Parallel()
		errLimit := errors.New("over the limit")
		requests := mediator.NewRequestMap()
		mediator.BindRequest(requests, func(_ context.Context, c creditAccount) (receipt, error) {
			return receipt{Balance: c.Cents}, errLimit
		})
		got, err := mediator.NewRequestMediator(requests).Send(t.Context(), creditAccount{Cents: 7})
		equal[any](t, got, receipt{Balance: 7})
		equal(t, err, errLimit)
	})

	t.Run("hands the caller's context to the handler", func(t *testing.T) {
		t.Parallel()
		type key struct{}
		requests := mediator.NewRequestMap()
		mediator.BindRequest(requests, func(ctx context.Context, _ closeAccount) (any, error) {
			return ctx.Value(key{}), nil
		})
		ctx := context.WithValue(t.Context(), key{}, "tenant-1")
		got, err := mediator.NewRequestMediator(requests).Send(ctx, closeAccount{})
		noError(t, err)
		equal[any](t, got, "tenant-1")
	})

	t.Run("has a nil response to a command", func(t *testing.T) {
		t.Parallel()
		errOpen := errors.New("open transfers")
		requests := mediator.NewRequestMap()
		mediator.BindCommand(requests, func(_ context.Context, c closeAccount) error {
			if c.Account == "busy" {
				return errOpen
			}
			return nil
		})
		m := mediator.NewRequestMediator(requests)
		got, err := m.Send(t.Context(), closeAccount{})
		noError(t, err)
		equal(t, got, nil)
		_, err = m.Send(t.Context(), closeAccount{Account: "busy"})
		equal(t, err, errOpen)
	})

	t.Run("tells that there is no handler", func(t *testing.T) {
		t.Parallel()
		m := mediator.NewRequestMediator(mediator.NewRequestMap())
		_, err := m.Send(t.Context(), &creditAccount{})
		equal(t, *as[*mediator.NoHandlerError](t, err), mediator.NoHandlerError{
			Type: reflect.TypeFor[creditAccount](), Kind: "request",
		})
		equal(t, err.Error(), "mediator: no handler for request mediator_test.creditAccount")
	})

	t.Run("sees what is bound after it was made", func(t *testing.T) {
		t.Parallel()
		var requests mediator.RequestMap
		m := mediator.NewRequestMediator(&requests)
		equal(t, m.Handles(reflect.TypeFor[creditAccount]()), false)
		mediator.BindRequest(&requests, credit)
		equal(t, m.Handles(reflect.TypeFor[creditAccount]()), true)
		_, err := m.Send(t.Context(), creditAccount{})
		noError(t, err)
	})

	t.Run("lets a handler's panic through", func(t *testing.T) {
		t.Parallel()
		errBoom := errors.New("boom")
		requests := mediator.NewRequestMap()
		mediator.BindCommand(requests, func(context.Context, closeAccount) error { panic(errBoom) })
		m := mediator.NewRequestMediator(requests)
		equal(t, panicText(t, func() { _, _ = m.Send(t.Context(), closeAccount{}) }), "boom")
	})

	t.Run("panics on a nil map", func(t *testing.T) {
		t.Parallel()
		equal(t, panicText(t, func() { mediator.NewRequestMediator(nil) }), "mediator: NewRequestMediator: the map is nil")
	})
}

func TestTypedSend(t *testing.T) {
	t.Parallel()
	errOverdrawn := errors.New("overdrawn")
	requests := mediator.NewRequestMap()
	mediator.BindRequest(requests, func(_ context.Context, c creditAccount) (receipt, error) {
		if c.Cents < 0 {
			return receipt{Balance: c.Cents}, errOverdrawn
		}
		return receipt{Balance: c.Cents}, nil
	})
	mediator.BindCommand(requests, closeIt)
	m := mediator.NewRequestMediator(requests)

	t.Run("returns the response in its type", func(t *testing.T) {
		t.Parallel()
		got, err := mediator.Send[receipt](t.Context(), m, creditAccount{Cents: 5})
		noError(t, err)
		equal(t, got, receipt{Balance: 5})
	})

	t.Run("returns the response as an interface that it satisfies", func(t *testing.T) {
		t.Parallel()
		got, err := mediator.Send[any](t.Context(), m, creditAccount{Cents: 5})
		noError(t, err)
		equal[any](t, got, receipt{Balance: 5})
	})

	t.Run("makes the zero value of a nil response", func(t *testing.T) {
		t.Parallel()
		got, err := mediator.Send[receipt](t.Context(), m, closeAccount{})
		noError(t, err)
		equal(t, got, receipt{})
		face, err := mediator.Send[auditor](t.Context(), m, closeAccount{})
		noError(t, err)
		equal(t, face, nil)
	})

	t.Run("refuses a response of another type", func(t *testing.T) {
		t.Parallel()
		_, err := mediator.Send[*receipt](t.Context(), m, &creditAccount{})
		equal(t, *as[*mediator.ResponseTypeError](t, err), mediator.ResponseTypeError{
			Request: reflect.TypeFor[creditAccount](), Want: reflect.TypeFor[*receipt](), Got: reflect.TypeFor[receipt](),
		})
		equal(t, err.Error(),
			"mediator: the response to mediator_test.creditAccount is mediator_test.receipt, not *mediator_test.receipt")
	})

	t.Run("returns the zero value beside the handler's error", func(t *testing.T) {
		t.Parallel()
		got, err := mediator.Send[receipt](t.Context(), m, creditAccount{Cents: -1})
		equal(t, err, errOverdrawn)
		equal(t, got, receipt{})
	})

	t.Run("passes on that there is no handler", func(t *testing.T) {
		t.Parallel()
		_, err := mediator.Send[receipt](t.Context(), m, accountCredited{})
		as[*mediator.NoHandlerError](t, err)
	})
}
