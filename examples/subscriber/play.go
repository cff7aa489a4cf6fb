package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/transport/wminbox"
)

// play sends, receives and processes everything, and checks what came out.
func play(ctx context.Context, b *broker, a *app, p plan) (result, []string, error) {
	var seen tally
	handle, err := wminbox.NewHandler(a.repo, wminbox.Config{
		IDs:      append(b.ids, wminbox.Scoped("ours", wminbox.UUID)),
		Names:    []wminbox.NameExtractor{wminbox.FixedName("order")},
		Source:   "foreign",
		Decode:   a.names,
		Reject:   a.park,
		Observer: &seen,
	})
	if err != nil {
		return result{}, nil, err
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 30 * time.Second}, watermill.NopLogger{})
	if err != nil {
		return result{}, nil, err
	}
	router.AddConsumerHandler("inbox", b.topic, b.subscriber, handle)

	running, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make(chan error, 3)
	go func() { errs <- router.Run(running) }()
	go func() { errs <- a.processor.Run(running) }()
	<-router.Running()
	go func() { errs <- send(b, p) }()

	// The producers are done, the subscriber has settled what they sent, and the
	// processor has nothing left.
	if err := <-errs; err != nil {
		return result{}, nil, fmt.Errorf("send: %w", err)
	}
	for {
		stats, err := a.repo.Stats(ctx)
		if err != nil {
			return result{}, nil, err
		}
		if seen.settled() >= p.deliveries() && stats.Pending == 0 {
			break
		}
		select {
		case err := <-errs:
			return result{}, nil, fmt.Errorf("stopped early: %w", err)
		case <-ctx.Done():
			return result{}, nil, fmt.Errorf("%d of %d deliveries: %w", seen.settled(), p.deliveries(), ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
	cancel()
	if err := errors.Join(router.Close(), <-errs, <-errs); err != nil {
		return result{}, nil, err
	}
	got, err := outcome(ctx, a, &seen)
	if err != nil {
		return result{}, nil, err
	}
	problems := check(got, p)
	got.OK = len(problems) == 0
	return got, problems, nil
}

// send lets the two producers work side by side.
func send(b *broker, p plan) error {
	done := make(chan error)
	go func() {
		for _, m := range p.ours {
			if err := b.publisher.Publish(b.topic, message.NewMessage(m.id, []byte(m.body))); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	err := b.sendForeign(p.foreign)
	return errors.Join(err, <-done)
}

func outcome(ctx context.Context, a *app, seen *tally) (got result, err error) {
	stats, err := a.repo.Stats(ctx)
	if err != nil {
		return got, err
	}
	got = result{
		Deliveries: seen.settled(),
		Stored:     int(seen.stored.Load()),
		Duplicates: int(seen.duplicates.Load()),
		Rejected:   int(seen.rejected.Load()),
		Processed:  int(stats.Processed),
		Dead:       int(stats.Dead),
	}
	got.Effects, err = a.count(ctx, `SELECT count(*) FROM letterbox_example_shipments`)
	return got, err
}

// check compares with the plan. A real broker may deliver more often than asked.
func check(got result, p plan) (problems []string) {
	want := func(what string, got, want int) {
		if got != want {
			problems = append(problems, fmt.Sprintf("%s: %d, want %d", what, got, want))
		}
	}
	want("stored", got.Stored, p.orders+p.refused)
	want("processed", got.Processed, p.orders)
	want("dead", got.Dead, p.refused)
	want("effects", got.Effects, p.orders)
	want("deliveries that add up", got.Stored+got.Duplicates+got.Rejected, got.Deliveries)
	if got.Rejected < p.unreadable {
		want("rejected", got.Rejected, p.unreadable)
	}
	return problems
}

// tally counts what became of deliveries.
type tally struct{ stored, duplicates, rejected atomic.Int64 }

func (c *tally) Accepted(_ context.Context, outcome inbox.Outcome) {
	if outcome.Kind == inbox.Stored {
		c.stored.Add(1)
	} else {
		c.duplicates.Add(1)
	}
}

func (c *tally) Rejected(context.Context, *wminbox.RejectError) { c.rejected.Add(1) }
func (c *tally) Nacked(context.Context, error)                  {}

func (c *tally) settled() int {
	return int(c.stored.Load() + c.duplicates.Load() + c.rejected.Load())
}
