package main

import (
	"context"
	"fmt"
)

const (
	// loadBatch is how many messages are accepted at once before a drain.
	loadBatch = 1000
	perSecond = "msg/s"
)

// drain is a contender: n messages accepted beforehand, the time from the start of
// the workers to the last commit of an effect.
type drain struct {
	bench    *bench
	name     string
	n        int
	how      settings
	keys     int // ordering keys, 0: none
	baseline bool
	// grow, if there, makes the database bigger before the first round.
	grow func(ctx context.Context, o *opened) error
	// beside, if there, starts what goes on during the measured part.
	beside func(ctx context.Context, o *opened) (stop func() error, err error)
	// load, if there, replaces accept.
	load func(ctx context.Context, o *opened, messages []message) error
}

func (d drain) contender() contender {
	return contender{peer: d.name, baseline: d.baseline, n: d.n, note: d.how.String(), open: d.open}
}

func (d drain) open(ctx context.Context) (trial, error) {
	o, err := openPeer(ctx, d.bench.server, d.bench.profiles[d.name].new())
	if err != nil {
		return trial{}, err
	}
	if d.grow != nil {
		if err := d.grow(ctx, o); err != nil {
			_ = o.closeAll(ctx)
			return trial{}, fmt.Errorf("grow: %w", err)
		}
	}
	// Once unmeasured: connections, prepared statements, caches.
	warm := min(d.n/10+1, 500)
	messages := newMessages(warm)
	err = acceptAll(ctx, o, messages)
	if err == nil {
		alone := d
		alone.beside = nil
		_, err = alone.once(ctx, o, messages)
	}
	if err != nil {
		_ = o.closeAll(ctx)
		return trial{}, fmt.Errorf("warm up: %w", err)
	}
	return trial{
		prepare: func(ctx context.Context) error {
			messages = d.messages()
			return d.loadInto(ctx, o, messages)
		},
		run: func(ctx context.Context) ([]figure, error) {
			rate, err := d.once(ctx, o, messages)
			return []figure{{perSecond, rate}}, err
		},
		close: o.closeAll,
	}, nil
}

func (d drain) messages() []message {
	messages := newMessages(d.n)
	if d.keys > 0 {
		messages = withKeys(messages, d.keys)
	}
	return messages
}

func (d drain) loadInto(ctx context.Context, o *opened, messages []message) error {
	load := d.load
	if load == nil {
		load = acceptAll
	}
	if err := load(ctx, o, messages); err != nil {
		return err
	}
	if _, err := o.db.pool.Exec(ctx, clearEffects); err != nil {
		return err
	}
	return o.db.settle(ctx)
}

func acceptAll(ctx context.Context, o *opened, messages []message) error {
	return inBatches(messages, loadBatch, func(batch []message) error { return o.accept(ctx, batch) })
}

// once drains messages that have been loaded and returns the rate, but only if the
// effects add up.
func (d drain) once(ctx context.Context, o *opened, messages []message) (rate float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.bench.scale.patience)
	defer cancel()
	stop := func() error { return nil }
	if d.beside != nil {
		if stop, err = d.beside(ctx, o); err != nil {
			return 0, fmt.Errorf("beside: %w", err)
		}
	}
	begin, err := o.db.now(ctx)
	if err == nil {
		err = o.process(ctx, d.how, newWork(len(messages), o.db.committed))
	}
	if failure := stop(); err == nil {
		err = failure
	}
	if err != nil {
		return 0, err
	}
	if err := o.db.verify(ctx, o.counts(), messages); err != nil {
		return 0, err
	}
	seconds, err := o.db.untilLastEffect(ctx, begin)
	if err == nil && seconds <= 0 {
		err = fmt.Errorf("the last effect was committed %.3f s after the start: are the clocks right?", seconds)
	}
	return float64(len(messages)) / seconds, err
}

// background runs fn until stop is called.
func background(ctx context.Context, fn func(context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- ignoreEnd(ctx, fn(ctx)) }()
	return func() error {
		cancel()
		return <-ended
	}
}
