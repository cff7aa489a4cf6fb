package mediator_test

import (
	"context"
	"testing"

	"github.com/letterbox-go/letterbox/mediator"
)

func pass(ctx context.Context, message any, next mediator.Next) (any, error) {
	return next(ctx, message)
}

func BenchmarkSend(b *testing.B) {
	requests := mediator.NewRequestMap()
	mediator.BindRequest(requests, credit)
	mediator.BindCommand(requests, discard[*closeAccount])
	events := mediator.NewEventMap()
	mediator.BindEvent(events, "one", discard[*accountCredited])
	mediator.BindEvent(events, "two", discard[*accountCredited])

	plain := mediator.NewRequestMediator(requests)
	wrapped := mediator.NewRequestMediator(requests, pass, pass, pass)
	publisher := mediator.NewEventMediator(events)
	ctx := context.Background()
	c := creditAccount{Account: "a-1", Cents: 5} // a variable: boxing a constant would cost nothing

	for _, bb := range []struct {
		name string
		send func() error
	}{
		{"value to value", func() error { _, err := plain.Send(ctx, c); return err }},
		{"pointer to value", func() error { _, err := plain.Send(ctx, &c); return err }},
		{"value to pointer", func() error { _, err := plain.Send(ctx, closeAccount{c.Account}); return err }},
		{"pointer to pointer", func() error { _, err := plain.Send(ctx, &closeAccount{}); return err }},
		{"typed", func() error { _, err := mediator.Send[receipt](ctx, plain, c); return err }},
		{"three middleware", func() error { _, err := wrapped.Send(ctx, c); return err }},
		{"event with two handlers", func() error { return publisher.Send(ctx, &accountCredited{}) }},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := bb.send(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}

	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := plain.Send(ctx, c); err != nil {
					b.Error(err)
				}
			}
		})
	})
}

// Not parallel: AllocsPerRun counts the allocations of the whole process.
func TestSendOfAPointerDoesNotAllocate(t *testing.T) {
	requests := mediator.NewRequestMap()
	mediator.BindCommand(requests, discard[*closeAccount])
	events := mediator.NewEventMap()
	mediator.BindEvent(events, "ignore", discard[*accountCredited])

	m := mediator.NewRequestMediator(requests, pass, pass)
	publisher := mediator.NewEventMediator(events, pass, pass)
	ctx, command, event := t.Context(), &closeAccount{}, &accountCredited{}

	equal(t, testing.AllocsPerRun(100, func() { _, _ = m.Send(ctx, command) }), 0)
	equal(t, testing.AllocsPerRun(100, func() { _ = publisher.Send(ctx, event) }), 0)
}
