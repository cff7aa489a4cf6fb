package mediator

import (
	"context"
	"fmt"
)

// Next is what a middleware calls to go on: the next middleware, or the dispatch to the handlers. For events the
// response is nil.
type Next func(ctx context.Context, message any) (any, error)

// Middleware wraps a Send. The first one given to a mediator is the outermost: it sees the message first and the result
// last. An event's Send is wrapped once, around all of its handlers, not around each.
//
// Looking up the handlers is the innermost step, so middleware runs for a message without a handler too, and sees the
// [*NoHandlerError] come back. A nil message or nil pointer given to Send is refused before any middleware runs.
//
// A middleware may
//   - hand on another context;
//   - hand on another message: dispatch follows the message that arrives, whatever its type, and refuses a nil one;
//   - change the response or the error (the response of an event is discarded);
//   - return without calling next: no handler runs;
//   - call next more than once: everything further in runs again, for an event all of its handlers from the first.
//
// It is called by several goroutines when Send is.
type Middleware func(ctx context.Context, message any, next Next) (any, error)

// chain folds the middleware of the named constructor around last. Panics if one is nil.
func chain(constructor string, middleware []Middleware, last Next) Next {
	next := last
	for i := len(middleware) - 1; i >= 0; i-- {
		wrap, inner := middleware[i], next
		if wrap == nil {
			panic(fmt.Errorf("mediator: %s: middleware[%d] is nil", constructor, i))
		}
		next = func(ctx context.Context, message any) (any, error) {
			return wrap(ctx, message, inner)
		}
	}
	return next
}
