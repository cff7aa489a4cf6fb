package mediator

import (
	"fmt"
	"reflect"
)

// NoHandlerError is returned, as a pointer, by both mediators' Send when nothing is bound to the message's type: bind a
// handler, or decide that this message may go unhandled.
type NoHandlerError struct {
	// Type is the message's type as [TypeOf] tells it.
	Type reflect.Type
	// Kind is "request" or "event".
	Kind string
}

func (e *NoHandlerError) Error() string {
	return fmt.Sprintf("mediator: no handler for %s %s", e.Kind, e.Type)
}

// NilMessageError is returned, as a pointer, by both mediators' Send when the message is nil or a nil pointer, as it was
// sent or as a middleware handed it on. No handler has seen it.
type NilMessageError struct {
	// Type is the type of the nil pointer, and nil for an untyped nil.
	Type reflect.Type
	// Kind is "request" or "event".
	Kind string
}

func (e *NilMessageError) Error() string {
	if e.Type == nil {
		return fmt.Sprintf("mediator: nil %s", e.Kind)
	}
	return fmt.Sprintf("mediator: nil %s %s", e.Kind, e.Type)
}

// AlreadyBoundError is returned, as a pointer, by the TryBind functions, and is the panic value of the Bind functions,
// when the type has a handler (requests) or a handler of that name (events). The first bind stays.
type AlreadyBoundError struct {
	// Type is the message's type without its pointer.
	Type reflect.Type
	// Kind is "request" or "event".
	Kind string
	// Handler is the name that is taken; empty for requests.
	Handler string
}

func (e *AlreadyBoundError) Error() string {
	if e.Handler == "" {
		return fmt.Sprintf("mediator: bind %s %s: it has a handler already", e.Kind, e.Type)
	}
	return fmt.Sprintf("mediator: bind %s %s: it has a handler named %q already", e.Kind, e.Type, e.Handler)
}

// HandlerError is returned, as a pointer, by [EventMediator.Send]: the error of the first handler that failed. Handlers
// before it have run, those behind it have not.
type HandlerError struct {
	// Handler is the name under which the handler was bound.
	Handler string
	// Err is what the handler returned.
	Err error
}

func (e *HandlerError) Error() string {
	return fmt.Sprintf("mediator: event handler %q: %v", e.Handler, e.Err)
}

// Unwrap returns the handler's own error.
func (e *HandlerError) Unwrap() error {
	return e.Err
}

// ResponseTypeError is returned, as a pointer, by the function [Send] when the response is not of the type asked for. The
// handler has run without an error.
type ResponseTypeError struct {
	// Request is the type, as [TypeOf] tells it, of the request that was given to Send.
	Request reflect.Type
	// Want is the type that the caller of Send asked for.
	Want reflect.Type
	// Got is the type of the response.
	Got reflect.Type
}

func (e *ResponseTypeError) Error() string {
	return fmt.Sprintf("mediator: the response to %s is %s, not %s", e.Request, e.Got, e.Want)
}
