package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
)

var observeCases = []Case{
	{
		Name: "observers see what became true, once",
		Rule: "Each stored, repeated, processed, failed and dead message is observed after the commit that made it so.",
		Body: observesLife,
	},
	{
		Name: "observers do not see what was rolled back",
		Rule: "A batch that is run again one by one is observed as it ended, not as it went.",
		Body: observesNoRollback,
	},
	{
		Name: "observers do not see what a stop cut short",
		Rule: "A run that was given up for a stop is neither an attempt nor a postponement.",
		Body: observesNoStop,
	},
	{
		Name: "what happens in the caller's transaction is observed when he says Committed",
		Rule: "Add and Process do not know of the commit.",
		Body: observesCommitted,
	},
	{
		Name: "what a handler stores is observed after its commit",
		Rule: "Committed inside a handler takes effect with the handler's transaction, or not at all.",
		Body: observesHandlersOwn,
	},
	{
		Name: "inline handling is observed",
		Rule: "HandleOnce reports what it processed, and duplicates.",
		Body: observesInline,
	},
	{
		Name: "the observer's context is the handler's",
		Rule: "What Start puts into the context is there in the handler, and in the observation of the run.",
		Body: observerContext,
	},
	{
		Name: "a panicking observer harms nobody",
		Rule: "Its panic is caught; messages are processed as without it.",
		Body: observerPanics,
	},
}

// watcher is an Observer that keeps what it sees.
type watcher struct {
	mu    sync.Mutex
	seen  []string // "kind id"
	runs  int
	start func(ctx context.Context) context.Context
	watch func(ctx context.Context, o inbox.Observation)
}

func (w *watcher) Start(ctx context.Context, _ []inbox.Info) context.Context {
	w.mu.Lock()
	w.runs++
	w.mu.Unlock()
	if w.start != nil {
		return w.start(ctx)
	}
	return ctx
}

func (w *watcher) Observe(ctx context.Context, o inbox.Observation) {
	if o.Kind != inbox.SawClaimed {
		w.mu.Lock()
		w.seen = append(w.seen, fmt.Sprint(o.Kind, " ", o.Message.MessageID))
		w.mu.Unlock()
	}
	if w.watch != nil {
		w.watch(ctx, o)
	}
}

// expect compares what was seen since the last time, in any order.
func (w *watcher) expect(t *testing.T, when string, want ...string) {
	t.Helper()
	w.mu.Lock()
	got := slices.Sorted(slices.Values(w.seen))
	w.seen = nil
	w.mu.Unlock()
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s: observed %q, want %q", when, got, want)
	}
}

// observed puts a watcher between the rule and the inbox.
func (e *Env) observed(t *testing.T) *watcher {
	t.Helper()
	w := &watcher{}
	e.Repo = e.NewRepository(t, inbox.Config{Observer: w})
	return w
}

func observesLife(t *testing.T, e *Env) {
	w := e.observed(t)
	e.Accept(t, "a", "b")
	w.expect(t, "accept", "stored a", "stored b")
	entries := e.Entries("a", "b")
	entries[1].Message = Job{ID: "b", Note: "another body"}
	if _, err := e.Repo.Accept(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
	w.expect(t, "repeat", "duplicate a", "mismatch b")
	e.On("b", func(context.Context, Job) error { return errors.New("no") })
	p := e.Processor(t, inbox.ProcessorConfig{MaxAttempts: 2, Backoff: later})
	e.Drain(t, p)
	w.expect(t, "first attempt", "processed a", "failed b")
	e.MakeDue(t)
	e.Drain(t, p)
	w.expect(t, "last attempt", "dead b")
	e.Accept(t, "c")
	e.On("c", func(context.Context, Job) error { return inbox.Postpone(later.Max) })
	e.Drain(t, p)
	w.expect(t, "postponed", "stored c", "postponed c")
	if err := e.Repo.Retry(inbox.WithActor(t.Context(), "ann"), e.Row(t, "b").ID); err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.seen) != 1 {
		t.Errorf("a retry was observed as %q", w.seen)
	}
}

func observesNoRollback(t *testing.T, e *Env) {
	w := e.observed(t)
	e.On("b", func(ctx context.Context, job Job) error {
		if err := e.Effect(ctx, job.ID); err != nil {
			return err
		}
		return errors.New("after the write")
	})
	e.Accept(t, "a", "b", "c")
	w.expect(t, "accept", "stored a", "stored b", "stored c")
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{Backoff: later}))
	w.expect(t, "a batch that was run again", "processed a", "failed b", "processed c")
	if w.runs < 5 {
		t.Errorf("%d runs were started: the batch was not run again", w.runs)
	}
}

func observesNoStop(t *testing.T, e *Env) {
	w := e.observed(t)
	e.crashed(t) // so that it runs alone
	entered, release := e.blocked("slow")
	defer close(release)
	e.Accept(t, "slow")
	r := start(t, e.Processor(t, inbox.ProcessorConfig{Workers: 1, ShutdownGrace: -1}))
	<-entered
	r.stop(t)
	w.expect(t, "stopped", "stored slow")
}

func observesCommitted(t *testing.T, e *Env) {
	w := e.observed(t)
	var outcomes []inbox.Outcome
	e.begun(t, func(tx bun.Tx) {
		var err error
		if outcomes, err = e.Repo.Add(t.Context(), tx, e.Entries("a")); err != nil {
			t.Fatal(err)
		}
	})
	w.expect(t, "before Committed")
	e.Repo.Committed(t.Context(), outcomes)
	w.expect(t, "after Committed", "stored a")

	p := e.Processor(t, inbox.ProcessorConfig{})
	var claimed []*inbox.Claimed
	e.begun(t, func(tx bun.Tx) {
		var err error
		if claimed, err = e.Repo.GetMany(t.Context(), tx, 10); err != nil {
			t.Fatal(err)
		}
		for _, c := range claimed {
			if err := p.Process(t.Context(), tx, c); err != nil {
				t.Fatal(err)
			}
		}
	})
	w.expect(t, "processed, before Committed")
	p.Committed(t.Context(), claimed...)
	w.expect(t, "processed, after Committed", "processed a")
	p.Committed(t.Context(), claimed...)
	w.expect(t, "Committed again")
}

func observesHandlersOwn(t *testing.T, e *Env) {
	w := e.observed(t)
	fails := true
	e.On("outer", func(ctx context.Context, job Job) error {
		outcomes, err := e.Repo.Add(ctx, inbox.DB(ctx, e.DB), e.Entries("inner"))
		if err != nil {
			return err
		}
		e.Repo.Committed(ctx, outcomes)
		if fails {
			return errors.New("no")
		}
		return e.Effect(ctx, job.ID)
	})
	e.Accept(t, "outer")
	p := e.Processor(t, inbox.ProcessorConfig{Backoff: later})
	e.Drain(t, p)
	w.expect(t, "rolled back", "stored outer", "failed outer")
	fails = false
	e.MakeDue(t)
	e.Drain(t, p)
	w.expect(t, "committed", "processed outer", "stored inner", "processed inner")
}

func observesInline(t *testing.T, e *Env) {
	w := e.observed(t)
	receipt := inbox.Receipt{MessageID: "a", Name: "inline"}
	once := func(fail error) error {
		_, err := e.Repo.HandleOnce(t.Context(), receipt, func(ctx context.Context, _ bun.IDB) error {
			if err := e.Effect(ctx, "a"); err != nil {
				return err
			}
			return fail
		})
		return err
	}
	if err := once(errors.New("no")); err == nil {
		t.Fatal("no error")
	}
	w.expect(t, "failed and rolled back")
	for _, want := range []string{"processed a", "duplicate a"} {
		if err := once(nil); err != nil {
			t.Fatal(err)
		}
		w.expect(t, "inline", want)
	}
}

func observerContext(t *testing.T, e *Env) {
	type key struct{}
	w := e.observed(t)
	var inHandler, inObserver any
	w.start = func(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, "mark") }
	w.watch = func(ctx context.Context, o inbox.Observation) {
		if o.Kind == inbox.SawProcessed {
			inObserver = ctx.Value(key{})
			if o.Duration <= 0 || o.Began.IsZero() || o.Message.Name != "job" || o.Message.Attempt != 1 {
				t.Errorf("the observation says %+v", o)
			}
		}
	}
	e.On("a", func(ctx context.Context, job Job) error {
		inHandler = ctx.Value(key{})
		return e.Effect(ctx, job.ID)
	})
	e.Accept(t, "a")
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
	if inHandler != "mark" || inObserver != "mark" {
		t.Errorf("the handler saw %v, the observer %v", inHandler, inObserver)
	}
}

func observerPanics(t *testing.T, e *Env) {
	w := e.observed(t)
	w.start = func(context.Context) context.Context { panic("start") }
	w.watch = func(context.Context, inbox.Observation) { panic("observe") }
	e.Accept(t, "a", "b")
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
	for _, id := range []string{"a", "b"} {
		e.Expect(t, id, Processed, 0)
	}
}
