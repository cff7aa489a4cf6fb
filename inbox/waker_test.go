package inbox_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
)

// countingWaker is a waker of one process.
type countingWaker struct {
	notified  atomic.Int64
	listening atomic.Int64
	broken    error
	wake      chan func()
}

func (w *countingWaker) Notify(string) { w.notified.Add(1) }

func (w *countingWaker) Listen(ctx context.Context, _ string, wake func()) error {
	w.listening.Add(1)
	defer w.listening.Add(-1)
	if w.broken != nil {
		return w.broken
	}
	wake()
	w.wake <- wake
	<-ctx.Done()
	return nil
}

func TestWaker(t *testing.T) {
	t.Parallel()
	targets(t, func(t *testing.T, target target) {
		waker := &countingWaker{wake: make(chan func(), 1)}
		n := openNode(t, target, false)
		config, log := logged()
		config.Waker = waker
		var err error
		if n.repo, err = inbox.NewRepository(n.db, n.names, config); err != nil {
			t.Fatal(err)
		}

		n.accept(t, "a")
		n.accept(t, "a")
		if got := waker.notified.Load(); got != 1 {
			t.Errorf("%d notifications of an accept and its repeat, want one", got)
		}

		stop := n.running(t, inbox.ProcessorConfig{PollInterval: time.Hour})
		wake := <-waker.wake
		// From another process: nothing but the waker tells of it.
		other := openNode(t, target, true)
		other.accept(t, "b")
		eventually(t, "a wake-up makes the processor look", 10*time.Second, func() bool {
			wake()
			return n.count(t, `SELECT count(*) FROM effects`) == 2
		})
		stop()
		if got := waker.listening.Load(); got != 0 {
			t.Errorf("%d calls of Listen have outlived Run", got)
		}

		waker.broken = errors.New("out of order")
		n.accept(t, "c")
		n.running(t, inbox.ProcessorConfig{PollInterval: time.Hour})
		eventually(t, "a processor without wake-ups works", 10*time.Second, func() bool {
			return n.count(t, `SELECT count(*) FROM effects`) == 3
		})
		if got := strings.Count(log.String(), "out of order"); got != 1 {
			t.Errorf("%d lines say that there are no wake-ups, want one:\n%s", got, log)
		}
	})
}
