package dedupe

import (
	"context"

	"github.com/letterbox-go/letterbox/mediator"
)

// Middleware puts everything further in behind the guard. identify says which
// key a message has; where ok is false the message passes unguarded. A duplicate
// reaches no handler: its response and its error are nil.
//
// The key is confirmed when the handler returns. Around a handler that writes in
// a transaction which commits later (the inbox's, say) that is too early: a
// failed commit would be a lost message. There, call Do inside the handler,
// around the effect that is not in the database.
func Middleware(guard *Guard, identify func(message any) (scope, key string, ok bool)) mediator.Middleware {
	return func(ctx context.Context, message any, next mediator.Next) (any, error) {
		scope, key, ok := identify(message)
		if !ok {
			return next(ctx, message)
		}
		var response any
		_, err := guard.Do(ctx, scope, key, func(ctx context.Context) (err error) {
			response, err = next(ctx, message)
			return err
		})
		return response, err
	}
}
