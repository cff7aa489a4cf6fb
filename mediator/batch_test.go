package mediator_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/letterbox-go/letterbox/mediator"
)

type topUp struct{ Cents int }

type unrelated struct{}

func TestBatch(t *testing.T) {
	t.Parallel()
	bind := func() (*mediator.RequestMap, *[][]topUp) {
		requests := mediator.NewRequestMap()
		var got [][]topUp
		mediator.BindBatch(requests, func(_ context.Context, batch []topUp) error {
			got = append(got, batch)
			if batch[0].Cents < 0 {
				return errors.New("negative")
			}
			return nil
		})
		return requests, &got
	}

	t.Run("a batch handler gets all requests at once, and a single one as a slice of one", func(t *testing.T) {
		t.Parallel()
		requests, got := bind()
		m := mediator.NewRequestMediator(requests)
		if err := m.SendBatch(t.Context(), []any{topUp{1}, &topUp{2}, topUp{3}}); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Send(t.Context(), topUp{4}); err != nil {
			t.Fatal(err)
		}
		if err := m.SendBatch(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([][]topUp{{{1}, {2}, {3}}, {{4}}}, *got); diff != "" {
			t.Error(diff)
		}
	})

	t.Run("the error of the handler comes back", func(t *testing.T) {
		t.Parallel()
		requests, _ := bind()
		if err := mediator.NewRequestMediator(requests).SendBatch(t.Context(), []any{topUp{-1}}); err == nil || err.Error() != "negative" {
			t.Error(err)
		}
	})

	t.Run("middleware sees one Batch and may change it", func(t *testing.T) {
		t.Parallel()
		requests, got := bind()
		calls := 0
		m := mediator.NewRequestMediator(requests, func(ctx context.Context, message any, next mediator.Next) (any, error) {
			calls++
			return next(ctx, message.(mediator.Batch)[1:])
		})
		for _, batch := range [][]any{{topUp{1}, topUp{2}}, {topUp{1}}} {
			if err := m.SendBatch(t.Context(), batch); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff([][]topUp{{{2}}}, *got); diff != "" || calls != 2 {
			t.Error(calls, diff)
		}
	})

	t.Run("nil, mixed and unbound batches are errors", func(t *testing.T) {
		t.Parallel()
		requests, got := bind()
		mediator.BindCommand(requests, func(context.Context, unrelated) error { return nil })
		m := mediator.NewRequestMediator(requests)
		var isNil *mediator.NilMessageError
		if err := m.SendBatch(t.Context(), []any{topUp{1}, nil}); !errors.As(err, &isNil) {
			t.Errorf("nil: %v", err)
		}
		if err := m.SendBatch(t.Context(), []any{topUp{1}, unrelated{}}); err == nil {
			t.Error("mixed: no error")
		}
		var none *mediator.NoHandlerError
		if err := m.SendBatch(t.Context(), []any{unrelated{}}); !errors.As(err, &none) {
			t.Errorf("a handler for single requests: %v", err)
		}
		if len(*got) != 0 {
			t.Errorf("the handler was called: %v", *got)
		}
	})

	t.Run("a type has one handler, whichever kind", func(t *testing.T) {
		t.Parallel()
		requests, _ := bind()
		var bound *mediator.AlreadyBoundError
		if err := mediator.TryBindCommand(requests, func(context.Context, *topUp) error { return nil }); !errors.As(err, &bound) {
			t.Error(err)
		}
		if err := mediator.TryBindBatch(requests, func(context.Context, []topUp) error { return nil }); !errors.As(err, &bound) {
			t.Error(err)
		}
		if err := mediator.TryBindBatch[topUp](requests, nil); err == nil {
			t.Error("nil handler")
		}
		if m := mediator.NewRequestMediator(requests); !m.HandlesBatch(reflect.TypeFor[*topUp]()) || m.HandlesBatch(reflect.TypeFor[unrelated]()) {
			t.Error("HandlesBatch")
		}
	})
}

func ExampleBindBatch() {
	requests := mediator.NewRequestMap()
	mediator.BindBatch(requests, func(_ context.Context, credits []struct{ Cents int }) error {
		fmt.Println("one statement for", len(credits), "credits")
		return nil
	})
	m := mediator.NewRequestMediator(requests)
	if err := m.SendBatch(context.Background(), []any{struct{ Cents int }{1}, struct{ Cents int }{2}}); err != nil {
		fmt.Println(err)
	}
	// Output: one statement for 2 credits
}
