package mediator

import (
	"context"
	"errors"
	"reflect"
)

// RequestMediator sends each request to its one handler, through the middleware. It is made by [NewRequestMediator] and is
// safe for concurrent use.
type RequestMediator struct {
	requests *RequestMap
	next     Next
}

// NewRequestMediator returns a mediator over m; what is bound to m later is seen too. The first middleware is the outermost.
// Panics if m or a middleware is nil.
func NewRequestMediator(m *RequestMap, middleware ...Middleware) *RequestMediator {
	if m == nil {
		panic(errors.New("mediator: NewRequestMediator: the map is nil"))
	}
	return &RequestMediator{requests: m, next: chain("NewRequestMediator", middleware, m.dispatch)}
}

// Send runs the handler of the request's type and returns its response and error as they are; the response is nil when a
// command was sent. It returns a [*NilMessageError] for a nil request or nil pointer, and a [*NoHandlerError] when the
// type has no handler. The function [Send] is the same with a typed response.
func (m *RequestMediator) Send(ctx context.Context, request any) (any, error) {
	if err := refuseNil(kindRequest, request); err != nil {
		return nil, err
	}
	return m.next(ctx, request)
}

// Handles reports whether the type t has a handler. A type and its pointer are one; nil has none.
func (m *RequestMediator) Handles(t reflect.Type) bool {
	return m.requests.Handles(t)
}

// Send sends the request through m and returns the response as a Res. A nil response, as of a command, is the zero Res; a
// response that is not a Res is a [*ResponseTypeError], although the handler has run. With any error, the response is
// the zero Res. The other errors are those of [RequestMediator.Send].
func Send[Res any](ctx context.Context, m *RequestMediator, request any) (Res, error) {
	var zero Res
	response, err := m.Send(ctx, request)
	if err != nil || response == nil {
		return zero, err
	}
	res, ok := response.(Res)
	if !ok {
		return zero, &ResponseTypeError{Request: TypeOf(request), Want: reflect.TypeFor[Res](), Got: reflect.TypeOf(response)}
	}
	return res, nil
}

// EventMediator sends each event to all of its handlers, through the middleware. It is made by [NewEventMediator] and is
// safe for concurrent use.
type EventMediator struct {
	events *EventMap
	next   Next
}

// NewEventMediator returns a mediator over m; what is bound to m later is seen too. The first middleware is the outermost.
// Panics if m or a middleware is nil.
func NewEventMediator(m *EventMap, middleware ...Middleware) *EventMediator {
	if m == nil {
		panic(errors.New("mediator: NewEventMediator: the map is nil"))
	}
	return &EventMediator{events: m, next: chain("NewEventMediator", middleware, m.dispatch)}
}

// Send runs the handlers of the event's type in the order in which they were bound, and stops at the first error, which it
// returns as a [*HandlerError]. It returns a [*NilMessageError] for a nil event or nil pointer, and a [*NoHandlerError]
// when the type has no handlers.
func (m *EventMediator) Send(ctx context.Context, event any) error {
	if err := refuseNil(kindEvent, event); err != nil {
		return err
	}
	_, err := m.next(ctx, event)
	return err
}

// Handles reports whether the type t has at least one handler. A type and its pointer are one; nil has none.
func (m *EventMediator) Handles(t reflect.Type) bool {
	return m.events.Handles(t)
}
