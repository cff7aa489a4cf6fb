package main

import (
	"context"
	"fmt"
	"time"
)

// accept is a contender: callers store messages, size at a time, and wait for each commit.
type accept struct {
	bench    *bench
	name     string
	peer     peer // nil: the one of that name
	n        int
	callers  int
	size     int
	repeats  bool // every second message is there already
	baseline bool
	grow     func(ctx context.Context, o *opened) error
}

func (a accept) contender() contender {
	note := fmt.Sprintf("%d callers", a.callers)
	if a.callers == 1 {
		note = "1 caller"
	}
	return contender{peer: a.name, baseline: a.baseline, n: a.n, note: note, open: a.open}
}

func (a accept) open(ctx context.Context) (trial, error) {
	p := a.peer
	if p == nil {
		p = a.bench.profiles[a.name].new()
	}
	o, err := openPeer(ctx, a.bench.server, p)
	if err != nil {
		return trial{}, err
	}
	if a.grow != nil {
		err = a.grow(ctx, o)
	}
	if err == nil {
		// Once unmeasured, with all callers: connections and prepared statements.
		messages := newMessages(max(min(a.n, 4*a.callers*a.size), a.size))
		_, err = a.once(ctx, o, messages, len(messages))
	}
	if err != nil {
		_ = o.closeAll(ctx)
		return trial{}, fmt.Errorf("warm up: %w", err)
	}
	var messages []message
	fresh := a.n
	return trial{
		prepare: func(ctx context.Context) error {
			messages = newMessages(a.n)
			if a.repeats {
				known := everySecond(messages)
				fresh = a.n - len(known)
				if err := acceptAll(ctx, o, known); err != nil {
					return err
				}
			}
			return o.db.settle(ctx)
		},
		run: func(ctx context.Context) ([]figure, error) {
			rate, err := a.once(ctx, o, messages, fresh)
			return []figure{{perSecond, rate}}, err
		},
		close: o.closeAll,
	}, nil
}

func everySecond(messages []message) (out []message) {
	for i := 0; i < len(messages); i += 2 {
		out = append(out, messages[i])
	}
	return out
}

// once accepts messages, fresh of which are new, and returns the rate, but only if
// those are there afterwards.
func (a accept) once(ctx context.Context, o *opened, messages []message, fresh int) (rate float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, a.bench.scale.patience)
	defer cancel()
	before, err := o.db.count(ctx, o.counts().stored)
	if err != nil {
		return 0, err
	}
	calls := make(chan []message, len(messages)/a.size+1)
	_ = inBatches(messages, a.size, func(batch []message) error {
		calls <- batch
		return nil
	})
	close(calls)
	began := time.Now()
	err = together(ctx, repeat(a.callers, func(ctx context.Context) error {
		for batch := range calls {
			if err := o.accept(ctx, batch); err != nil {
				return err
			}
		}
		return nil
	})...)
	took := time.Since(began)
	if err != nil {
		return 0, err
	}
	after, err := o.db.count(ctx, o.counts().stored)
	if err == nil && after-before != int64(fresh) {
		err = fmt.Errorf("%w: %d messages stored instead of %d", errRefused, after-before, fresh)
	}
	return float64(len(messages)) / took.Seconds(), err
}
