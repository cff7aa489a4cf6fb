package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	unitP50 = "ms p50"
	unitP99 = "ms p99"
	unitMax = "ms max"

	// latencyWarm messages go ahead of what is measured.
	latencyWarm = 20
)

// latency is a contender: an idle processor, and messages that arrive one by one
// at a steady rate. Measured is the time from the return of accept to the commit
// of the effect. A late sender is not forgiven: each message has its own time to
// be sent, whether or not the one before has been answered.
type latency struct {
	bench *bench
	name  string
	peer  peer // nil: the one of that name
	rate  int  // messages per second
	how   settings
}

func (l latency) n() int { return max(int(float64(l.rate)*l.bench.scale.seconds), 1) }

func (l latency) contender() contender {
	return contender{peer: l.name, n: l.n(), note: l.how.String(), open: l.open}
}

func (l latency) open(ctx context.Context) (trial, error) {
	p := l.peer
	if p == nil {
		p = l.bench.profiles[l.name].new()
	}
	o, err := openPeer(ctx, l.bench.server, p)
	if err != nil {
		return trial{}, err
	}
	return trial{
		prepare: func(ctx context.Context) error {
			if _, err := o.db.pool.Exec(ctx, clearEffects); err != nil {
				return err
			}
			return o.db.settle(ctx)
		},
		run:   func(ctx context.Context) ([]figure, error) { return l.once(ctx, o) },
		close: o.closeAll,
	}, nil
}

func (l latency) once(ctx context.Context, o *opened) ([]figure, error) {
	ctx, cancel := context.WithTimeout(ctx, l.bench.scale.patience)
	defer cancel()
	skew, err := clockSkew(ctx, o.db)
	if err != nil {
		return nil, err
	}
	messages := newMessages(latencyWarm + l.n())
	answered, err := whileProcessing(ctx, func(ctx context.Context) error {
		return o.process(ctx, l.how, newWork(len(messages), o.db.committed))
	}, func() ([]time.Time, error) {
		return sendSteadily(ctx, messages, l.rate, func(ctx context.Context, m message) error { return o.accept(ctx, []message{m}) })
	})
	if err != nil {
		return nil, err
	}
	if err := o.db.verify(ctx, o.counts(), messages); err != nil {
		return nil, err
	}
	times, err := o.db.effectTimes(ctx)
	if err != nil {
		return nil, err
	}
	var delays []time.Duration
	for i := latencyWarm; i < len(messages); i++ {
		at, ok := times[messages[i].ID]
		if !ok {
			return nil, fmt.Errorf("%w: no effect of message %d", errRefused, i)
		}
		delays = append(delays, at.Sub(answered[i].Add(skew)))
	}
	return percentiles(delays), nil
}

// whileProcessing sends, and returns when process has: by itself, or because
// something could not be sent.
func whileProcessing(ctx context.Context, process func(context.Context) error, send func() ([]time.Time, error)) ([]time.Time, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- process(ctx) }()
	answered, err := send()
	if err != nil {
		cancel()
	}
	if failure := <-ended; err == nil {
		err = failure
	}
	return answered, err
}

// sendSteadily accepts each message at its time and returns when each was answered.
func sendSteadily(ctx context.Context, messages []message, rate int, send func(context.Context, message) error) ([]time.Time, error) {
	answered, errs := make([]time.Time, len(messages)), make([]error, len(messages))
	var group sync.WaitGroup
	began := time.Now()
	for i, m := range messages {
		time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(rate))))
		group.Go(func() {
			errs[i] = send(ctx, m)
			answered[i] = time.Now()
		})
	}
	group.Wait()
	return answered, errors.Join(errs...)
}

// clockSkew is what to add to this process's clock to get the server's: 0 or
// nearly so on one machine.
func clockSkew(ctx context.Context, d *database) (time.Duration, error) {
	best, skew := time.Hour, time.Duration(0)
	for range 10 {
		began := time.Now()
		now, err := d.now(ctx)
		if err != nil {
			return 0, err
		}
		if took := time.Since(began); took < best {
			best, skew = took, now.Sub(began.Add(took/2))
		}
	}
	if skew.Abs() < 2*best {
		return 0, nil // less than can be told
	}
	return skew, nil
}

// percentiles of delays in milliseconds. An effect may be committed before the
// sender has its answer: that is a delay of 0.
func percentiles(delays []time.Duration) []figure {
	slices.Sort(delays)
	at := func(share float64) float64 {
		i := min(int(share*float64(len(delays))), len(delays)-1)
		return max(delays[i].Seconds()*1000, 0)
	}
	return []figure{{unitP50, at(0.50)}, {unitP99, at(0.99)}, {unitMax, at(1)}}
}
