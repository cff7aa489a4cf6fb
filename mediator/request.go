package mediator

import (
	"context"
	"reflect"
)

// RequestMap holds exactly one handler per request type. The zero value is empty and ready to use. A RequestMap is safe
// for concurrent use and must not be copied after its first use.
type RequestMap struct {
	handlers table[requestHandler]
}

// requestHandler is what is bound to a type; the zero value is nothing.
type requestHandler struct {
	one   Next
	batch batchHandler // nil unless BindBatch bound it
}

// NewRequestMap returns an empty map.
func NewRequestMap() *RequestMap {
	return new(RequestMap)
}

// BindRequest makes handler the one handler of the type Req, and of its pointer or value. Panics if m or handler is nil,
// if Req is an interface or a deeper pointer, or if the type has a handler already; the panic value is the error that
// [TryBindRequest] returns.
func BindRequest[Req, Res any](m *RequestMap, handler func(context.Context, Req) (Res, error)) {
	must(TryBindRequest(m, handler))
}

// TryBindRequest is [BindRequest] with an error in place of the panic. A second bind of a type is an
// [*AlreadyBoundError]. After an error the map is as it was.
func TryBindRequest[Req, Res any](m *RequestMap, handler func(context.Context, Req) (Res, error)) error {
	if err := checkBind[Req](kindRequest, m == nil, handler == nil); err != nil {
		return err
	}
	return m.bind(reflect.TypeFor[Req](), requestHandler{one: func(ctx context.Context, request any) (any, error) {
		return handler(ctx, receive[Req](request))
	}})
}

// BindCommand is [BindRequest] for a handler without a response: its response is nil. A type has one handler, whichever
// of the two bound it.
func BindCommand[C any](m *RequestMap, handler func(context.Context, C) error) {
	must(TryBindCommand(m, handler))
}

// TryBindCommand is [BindCommand] with an error in place of the panic, as in [TryBindRequest].
func TryBindCommand[C any](m *RequestMap, handler func(context.Context, C) error) error {
	if handler == nil {
		return TryBindRequest[C, any](m, nil)
	}
	return TryBindRequest(m, func(ctx context.Context, command C) (any, error) {
		return nil, handler(ctx, command)
	})
}

// Handles reports whether the type t has a handler. A type and its pointer are one; nil has none.
func (m *RequestMap) Handles(t reflect.Type) bool {
	return m.handlers.get(keyOf(t)).one != nil
}

func (m *RequestMap) bind(t reflect.Type, handler requestHandler) error {
	key := keyOf(t)
	return m.handlers.change(key, func(bound requestHandler) (requestHandler, error) {
		if bound.one != nil {
			return bound, &AlreadyBoundError{Kind: kindRequest, Type: key}
		}
		return handler, nil
	})
}

// dispatch is the innermost step of a Send: it looks the type up and runs the handler.
func (m *RequestMap) dispatch(ctx context.Context, request any) (any, error) {
	if batch, ok := request.(Batch); ok {
		return nil, m.dispatchBatch(ctx, batch)
	}
	if err := refuseNil(kindRequest, request); err != nil {
		return nil, err
	}
	key := TypeOf(request)
	handler := m.handlers.get(key)
	if handler.one == nil {
		return nil, &NoHandlerError{Kind: kindRequest, Type: key}
	}
	return handler.one(ctx, request)
}
