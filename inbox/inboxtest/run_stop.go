package inboxtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
)

var stopCases = []Case{
	{
		Name: "Run returns nil when it is stopped, and leaves no goroutine",
		Rule: "Run blocks, ends what it started, and can be called again.",
		Body: stopsIdle,
	},
	{
		Name: "a processor runs once at a time",
		Rule: "The second Run returns ErrRunning and does not disturb the first.",
		Body: runsOnce,
	},
	{
		Name: "a stop lets the running handler finish and starts no other",
		Rule: "Within the grace nothing is lost; what was not started is claimable at once.",
		Body: stopsGently,
	},
	{
		Name: "after the grace handlers are cancelled and nobody is charged",
		Rule: "What was cancelled is rolled back, neighbours included, and claimable at once.",
		Body: stopsHard,
	},
	{
		Name: "a handler that is cancelled while it runs alone is not charged",
		Rule: "One by one, after a failed batch, a stop is no attempt either.",
		Body: stopsHardAlone,
	},
	{
		Name: "a negative grace cancels at once",
		Rule: "Negative means off.",
		Body: stopsWithoutGrace,
	},
	{
		Name: "a handler that ignores the stop is abandoned, and Run says so",
		Rule: "Run does not hang on it, its writes are lost, and it is not charged.",
		Body: abandonsHandler,
	},
	{
		Name: "Drain stops as Run does",
		Rule: "The running handler finishes, no other starts, and the error is that of the context.",
		Body: drainStops,
	},
}

func stopsIdle(t *testing.T, e *Env) {
	p := e.Processor(t, inbox.ProcessorConfig{Workers: 3})
	for i, id := range []string{"first", "second"} {
		r := start(t, p)
		e.Accept(t, id)
		e.processed(t, i+1)
		r.stop(t)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Run(ended); err != nil {
		t.Errorf("Run under a cancelled context: %v", err)
	}
}

func runsOnce(t *testing.T, e *Env) {
	p := e.Processor(t, inbox.ProcessorConfig{})
	r := start(t, p)
	e.Accept(t, "before")
	e.processed(t, 1)
	if err := p.Run(t.Context()); !errors.Is(err, inbox.ErrRunning) {
		t.Errorf("the second Run: %v, want ErrRunning", err)
	}
	e.Accept(t, "after")
	e.processed(t, 2)
	r.stop(t)
}

// blocked scripts a handler that writes, says so, and waits for release or the
// end of its context.
func (e *Env) blocked(id string) (entered, release chan struct{}) {
	entered, release = make(chan struct{}, 10), make(chan struct{})
	e.On(id, func(ctx context.Context, job Job) error {
		if err := e.Effect(ctx, job.ID); err != nil {
			return err
		}
		if e.Calls(id) > 1 {
			return nil
		}
		entered <- struct{}{}
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	return entered, release
}

// claimableAtOnce fails unless the next Drain processes so many, uncharged.
func (e *Env) claimableAtOnce(t *testing.T, pending ...string) {
	t.Helper()
	for _, id := range pending {
		if row := e.Expect(t, id, Pending, 0); row.Interruptions != 0 || row.LastError != "" {
			t.Errorf("%q was charged: %+v", id, row)
		}
	}
	if n, err := e.Processor(t, inbox.ProcessorConfig{}).Drain(t.Context()); n != len(pending) || err != nil {
		t.Errorf("Drain after the stop: %d, %v, want %d", n, err, len(pending))
	}
}

func stopsGently(t *testing.T, e *Env) {
	entered, release := e.blocked("running")
	e.Accept(t, "done", "running", "not started")
	r := start(t, e.Processor(t, inbox.ProcessorConfig{Workers: 1}))
	<-entered
	r.cancel()
	select {
	case <-r.ended:
		t.Error("Run did not wait for the handler")
	case <-time.After(100 * time.Millisecond): // that nothing happens takes a while to see
	}
	close(release)
	if err := r.result(t); err != nil {
		t.Errorf("Run: %v", err)
	}
	e.Expect(t, "done", Processed, 0)
	e.Expect(t, "running", Processed, 0)
	if n := e.Calls("not started"); n != 0 {
		t.Errorf("a handler was started %d times after the stop", n)
	}
	e.claimableAtOnce(t, "not started")
}

func stopsHard(t *testing.T, e *Env) {
	entered, _ := e.blocked("running")
	e.Accept(t, "neighbour", "running", "not started")
	r := start(t, e.Processor(t, inbox.ProcessorConfig{Workers: 1, ShutdownGrace: 100 * time.Millisecond}))
	<-entered
	r.stop(t)
	if n := len(e.Effects(t)); n != 0 {
		t.Errorf("%d effects of a batch that was cancelled", n)
	}
	e.claimableAtOnce(t, "neighbour", "running", "not started")
}

func stopsHardAlone(t *testing.T, e *Env) {
	entered := make(chan struct{}, 1)
	e.On("running", func(ctx context.Context, job Job) error {
		if err := e.Effect(ctx, job.ID); err != nil || e.Calls(job.ID) != 2 {
			return err
		}
		entered <- struct{}{} // the second call is the one after the failed batch
		<-ctx.Done()
		return ctx.Err()
	})
	e.On("fails", func(ctx context.Context, job Job) error {
		if err := e.Effect(ctx, job.ID); err != nil || e.Calls(job.ID) > 1 {
			return err
		}
		return errors.New("fails the batch")
	})
	e.Accept(t, "running", "fails")
	r := start(t, e.Processor(t, inbox.ProcessorConfig{Workers: 1, ShutdownGrace: -1}))
	<-entered
	r.stop(t)
	e.claimableAtOnce(t, "running", "fails")
}

func stopsWithoutGrace(t *testing.T, e *Env) {
	entered, _ := e.blocked("running")
	e.Accept(t, "running")
	r := start(t, e.Processor(t, inbox.ProcessorConfig{ShutdownGrace: -1}))
	<-entered
	began := time.Now()
	r.stop(t)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the stop took %v", took)
	}
	e.claimableAtOnce(t, "running")
}

func abandonsHandler(t *testing.T, e *Env) {
	entered, release, returned := make(chan struct{}, 1), make(chan struct{}), make(chan error, 1)
	e.On("stubborn", func(ctx context.Context, job Job) error {
		err := e.Effect(ctx, job.ID)
		if e.Calls(job.ID) > 1 || err != nil {
			return err
		}
		entered <- struct{}{}
		<-release
		returned <- e.Effect(ctx, job.ID)
		return nil
	})
	e.Accept(t, "stubborn")
	p := e.Processor(t, inbox.ProcessorConfig{ShutdownGrace: -1, HandlerGrace: 50 * time.Millisecond})
	r := start(t, p)
	<-entered
	r.cancel()
	select {
	case <-r.ended:
	case <-time.After(10 * time.Second):
		t.Fatal("Run hangs on a handler that ignores its context")
	}
	if r.err == nil {
		t.Error("Run returned nil although it abandoned a handler")
	}
	close(release)
	if err := <-returned; err == nil {
		t.Error("an abandoned handler could still write")
	}
	e.claimableAtOnce(t, "stubborn")
}

func drainStops(t *testing.T, e *Env) {
	entered, release := e.blocked("running")
	e.Accept(t, "running", "not started")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	type result struct {
		n   int
		err error
	}
	done := make(chan result, 1)
	p := e.Processor(t, inbox.ProcessorConfig{})
	go func() {
		n, err := p.Drain(ctx)
		done <- result{n, err}
	}()
	<-entered
	cancel()
	close(release)
	if r := <-done; r.n != 1 || !errors.Is(r.err, context.Canceled) {
		t.Errorf("Drain: %d, %v, want 1 and the error of the context", r.n, r.err)
	}
	e.claimableAtOnce(t, "not started")
}
