// Package wmdedupe puts Watermill handlers behind a dedupe guard.
//
// # Quick start
//
//	guard, err := dedupe.New(dedupe.Config{Store: store})
//	handler := router.AddConsumerHandler("mail", "orders", subscriber, sendMail)
//	handler.AddMiddleware(wmdedupe.Middleware(guard, func(m *message.Message) (scope, key string, ok bool) {
//		return "mail", m.UUID, true
//	}))
//
// The scope should name the consumer: two handlers that see the same message
// must not take each other's work for their own.
//
// # Guarantee
//
// That of package dedupe: a duplicate is acked without calling the handler; a
// handler that fails is nacked and its key freed.
//
// # What it does not do
//
// Messages that a handler returns are published after the middleware is done. A
// crash in between would lose them, since the redelivery is a duplicate by then.
// So a handler with a publish topic is refused with [ErrPublishes] before it runs:
// use AddConsumerHandler and publish inside the handler.
//
// A bad key comes back as a *dedupe.KeyError, and the router nacks the message,
// again and again: put Watermill's PoisonQueueWithFilter outside of this
// middleware, with [IsPermanent] as its filter.
package wmdedupe

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/letterbox-go/letterbox/dedupe"
)

// ErrPublishes is returned for every message of a handler whose returned messages
// the router would publish. The handler did not run.
var ErrPublishes = errors.New("wmdedupe: the handler has a publish topic: use AddConsumerHandler and publish inside the handler")

// Middleware runs the handler once per key. identify says which key a message
// has; where ok is false the message passes unguarded. While the handler runs,
// the message's context also ends when the reservation is lost.
func Middleware(guard *dedupe.Guard, identify func(m *message.Message) (scope, key string, ok bool)) message.HandlerMiddleware {
	return func(handler message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) (produced []*message.Message, err error) {
			scope, key, ok := identify(m)
			if !ok {
				return handler(m)
			}
			outer := m.Context()
			if publishes(outer) {
				return nil, ErrPublishes
			}
			_, err = guard.Do(outer, scope, key, func(ctx context.Context) (err error) {
				m.SetContext(ctx)
				defer m.SetContext(outer)
				produced, err = handler(m)
				return err
			})
			return produced, err
		}
	}
}

// publishes reports that the router will publish what the handler returns. A
// context that came along from the handler before carries the topic that this
// one subscribes to.
func publishes(ctx context.Context) bool {
	topic := message.PublishTopicFromCtx(ctx)
	return topic != "" && topic != message.SubscribeTopicFromCtx(ctx)
}

// IsPermanent reports errors of this middleware that no redelivery can cure.
func IsPermanent(err error) bool {
	var bad *dedupe.KeyError
	return errors.As(err, &bad) || errors.Is(err, ErrPublishes)
}
