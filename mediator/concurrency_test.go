package mediator_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/letterbox-go/letterbox/mediator"
)

// request is a request type of its own for each V.
type request[V any] struct{}

func bindAndSend[V any](requests *mediator.RequestMap, m *mediator.RequestMediator) func(*testing.T) {
	return func(t *testing.T) {
		t.Parallel()
		bound := reflect.TypeFor[request[V]]()
		_, err := m.Send(t.Context(), request[V]{})
		as[*mediator.NoHandlerError](t, err)
		mediator.BindRequest(requests, func(context.Context, *request[V]) (reflect.Type, error) { return bound, nil })
		for range 200 {
			got, err := mediator.Send[reflect.Type](t.Context(), m, request[V]{})
			noError(t, err)
			equal(t, got, bound)
		}
	}
}

func TestBindWhileSending(t *testing.T) {
	t.Parallel()

	t.Run("a request is found as soon as its bind has returned", func(t *testing.T) {
		t.Parallel()
		requests := mediator.NewRequestMap()
		m := mediator.NewRequestMediator(requests)
		t.Run("int8", bindAndSend[int8](requests, m))
		t.Run("int16", bindAndSend[int16](requests, m))
		t.Run("int32", bindAndSend[int32](requests, m))
		t.Run("int64", bindAndSend[int64](requests, m))
		t.Run("uint8", bindAndSend[uint8](requests, m))
		t.Run("uint16", bindAndSend[uint16](requests, m))
		t.Run("uint32", bindAndSend[uint32](requests, m))
		t.Run("uint64", bindAndSend[uint64](requests, m))
	})

	t.Run("one of many binds of a request type wins", func(t *testing.T) {
		t.Parallel()
		for range 100 {
			requests := mediator.NewRequestMap()
			var won atomic.Int32
			atOnce(8, func(int) {
				err := mediator.TryBindRequest(requests, credit)
				if err == nil {
					won.Add(1)
				} else if already := (*mediator.AlreadyBoundError)(nil); !errors.As(err, &already) {
					t.Errorf("unexpected error: %v", err)
				}
			})
			equal(t, won.Load(), 1)
		}
	})

	t.Run("a send runs the handlers bound so far, none twice", func(t *testing.T) {
		t.Parallel()
		type event struct{ ran *[]int }
		const handlers = 100
		events := mediator.NewEventMap()
		m := mediator.NewEventMediator(events)
		bind := func(i int) {
			mediator.BindEvent(events, fmt.Sprint(i), func(_ context.Context, e event) error {
				*e.ran = append(*e.ran, i)
				return nil
			})
		}
		bind(0)

		var wg sync.WaitGroup
		wg.Go(func() {
			for i := 1; i < handlers; i++ {
				bind(i)
			}
		})
		for range 4 {
			wg.Go(func() {
				for seen := 0; seen < handlers; {
					var ran []int
					if err := m.Send(t.Context(), event{&ran}); err != nil {
						t.Errorf("unexpected error: %v", err)
						return
					}
					for i, got := range ran {
						equal(t, got, i)
					}
					if len(ran) < seen {
						t.Errorf("%d handlers ran, after %d before", len(ran), seen)
					}
					seen = len(ran)
				}
			})
		}
		wg.Wait()
		equal(t, len(events.HandlerNames(reflect.TypeFor[event]())), handlers)
	})
}

// Not parallel: binds meet only if they have the processors for themselves.
func TestNoBindIsLostAmongOthers(t *testing.T) {
	const binders, each = 8, 200
	events := mediator.NewEventMap()
	atOnce(binders, func(i int) {
		for j := range each {
			mediator.BindEvent(events, fmt.Sprint(i, " ", j), ignore)
		}
	})
	equal(t, len(events.HandlerNames(reflect.TypeFor[accountCredited]())), binders*each)
}

// atOnce runs f(0) to f(n-1), each in a goroutine, none before all are started.
func atOnce(n int, f func(i int)) {
	var wg sync.WaitGroup
	gate := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-gate
			f(i)
		})
	}
	close(gate)
	wg.Wait()
}
