package mediator

import (
	"context"
	"fmt"
	"reflect"
)

// Batch is what middleware sees of a [RequestMediator.SendBatch]: the requests, all of one type, in their order.
type Batch []any

// batchHandler handles requests of one type at once.
type batchHandler func(ctx context.Context, requests Batch) error

// BindBatch makes handler the one handler of the command type C, for many commands at once: one statement may then do for
// all. It is never called with an empty slice. A single Send reaches it as a slice of one. The handler fails or succeeds as
// a whole. Panics where [BindRequest] does.
func BindBatch[C any](m *RequestMap, handler func(context.Context, []C) error) {
	must(TryBindBatch(m, handler))
}

// TryBindBatch is [BindBatch] with an error in place of the panic, as in [TryBindRequest].
func TryBindBatch[C any](m *RequestMap, handler func(context.Context, []C) error) error {
	if err := checkBind[C](kindRequest, m == nil, handler == nil); err != nil {
		return err
	}
	return m.bind(reflect.TypeFor[C](), requestHandler{
		one: func(ctx context.Context, request any) (any, error) {
			return nil, handler(ctx, []C{receive[C](request)})
		},
		batch: func(ctx context.Context, requests Batch) error {
			commands := make([]C, len(requests))
			for i, request := range requests {
				commands[i] = receive[C](request)
			}
			return handler(ctx, commands)
		},
	})
}

// HandlesBatch reports whether the type t has a handler that takes many requests at once.
func (m *RequestMap) HandlesBatch(t reflect.Type) bool {
	return m.handlers.get(keyOf(t)).batch != nil
}

// HandlesBatch reports whether the type t has a handler that takes many requests at once.
func (m *RequestMediator) HandlesBatch(t reflect.Type) bool {
	return m.requests.HandlesBatch(t)
}

// SendBatch runs the batch handler of the requests' type once, through the middleware, which sees one [Batch]. No requests
// are no error. It returns a [*NilMessageError], a [*NoHandlerError] when the type has no batch handler, and an error when
// the requests are of several types.
func (m *RequestMediator) SendBatch(ctx context.Context, requests []any) error {
	if len(requests) == 0 {
		return nil
	}
	_, err := m.next(ctx, Batch(requests))
	return err
}

func (m *RequestMap) dispatchBatch(ctx context.Context, requests Batch) error {
	for _, request := range requests {
		if err := refuseNil(kindRequest, request); err != nil {
			return err
		}
		if first, other := TypeOf(requests[0]), TypeOf(request); first != other {
			return fmt.Errorf("mediator: a batch of %s holds a %s", first, other)
		}
	}
	if len(requests) == 0 {
		return nil // a middleware took them all out
	}
	key := TypeOf(requests[0])
	handler := m.handlers.get(key).batch
	if handler == nil {
		return &NoHandlerError{Kind: kindRequest, Type: key}
	}
	return handler(ctx, requests)
}
