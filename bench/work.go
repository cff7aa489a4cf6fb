package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// commitPatience is how long a peer may take to commit what its handlers did.
const commitPatience = 30 * time.Second

// work is what a peer has to process in one run: it counts handler calls and says
// when to stop.
type work struct {
	want      int64
	handled   atomic.Int64
	all       chan struct{} // closed when want handlers have run
	committed func(context.Context) (int64, error)
	pause     time.Duration // between two looks at committed
	finished  func()        // if there, called when all are committed
}

func newWork(want int, committed func(context.Context) (int64, error)) *work {
	return &work{want: int64(want), all: make(chan struct{}), committed: committed, pause: 5 * time.Millisecond}
}

// did says that the handlers of n messages have run, perhaps not committed yet.
func (w *work) did(n int) {
	now := w.handled.Add(int64(n))
	if now >= w.want && now-int64(n) < w.want {
		close(w.all)
	}
}

// wait returns when all effects are committed.
func (w *work) wait(ctx context.Context) error {
	select {
	case <-w.all:
	case <-ctx.Done():
		return fmt.Errorf("%d of %d messages handled: %w", w.handled.Load(), w.want, context.Cause(ctx))
	}
	deadline := time.Now().Add(commitPatience)
	for {
		n, err := w.committed(ctx)
		switch {
		case err != nil:
			return err
		case n >= w.want:
			if w.finished != nil {
				w.finished()
			}
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("%d of %d effects committed", n, w.want)
		}
		time.Sleep(w.pause)
	}
}

// until runs fn, which ends cleanly when its context does, until w is done.
func (w *work) until(ctx context.Context, fn func(context.Context) error) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		defer stop()
		ended <- fn(running)
	}()
	err := w.wait(running)
	stop()
	if failure := <-ended; failure != nil {
		return failure
	}
	if errors.Is(err, context.Canceled) && ctx.Err() == nil {
		return fmt.Errorf("stopped early: %w", err)
	}
	return err
}
