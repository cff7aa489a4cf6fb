package inboxtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/mediator"
)

var shareCases = []Case{
	{
		Name: "several processors share an inbox",
		Rule: "Each message is processed by one of them, and its handler runs once.",
		Body: sharesInbox,
	},
	{
		Name: "due retries run once although many processors start at once",
		Rule: "A thundering herd finds each retry once.",
		Body: herdOfRetries,
	},
	{
		Name: "a name's concurrency limit holds and does not hold up others",
		Rule: "No more batches than Policy.Concurrency hold messages of the name, other names go on, and a free permit wakes whoever went without.",
		Body: limitsConcurrency,
	},
	{
		Name: "a deep backlog of one name does not starve another",
		Rule: "Names take turns at the front.",
		Body: namesTakeTurns,
	},
	{
		Name: "the batch shrinks after a failure and grows again",
		Rule: "Halved on failure, grown slowly, never above BatchSize.",
		Body: batchAdapts,
	},
	{
		Name: "a batch ends when it takes long",
		Rule: "BatchDuration bounds how long the first message waits for the last; the rest is given back.",
		Body: batchEndsEarly,
	},
	{
		Name: "an accept waits for one handler at most",
		Rule: "SQLite has one writer: the processor lets acceptors of its process in between two handlers.",
		Body: acceptGetsIn,
	},
	{
		Name: "processors that conflict under strict isolation lose nothing",
		Rule: "Serialization failures are retried, not charged, and do not stop a processor.",
		Body: conflictingProcessors,
	},
}

// drainAll has so many processors drain at once.
func (e *Env) drainAll(t *testing.T, processors int, config inbox.ProcessorConfig) {
	t.Helper()
	var group sync.WaitGroup
	for range processors {
		p := e.Processor(t, config)
		group.Go(func() {
			if _, err := p.Drain(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	// One may have skipped what another gave back afterwards, or what the database
	// had broken off, which comes back a moment later.
	p := e.Processor(t, config)
	Eventually(t, "nothing is pending", func() bool {
		e.Drain(t, p)
		return e.Count(t, `SELECT count(*) FROM inbox_queue WHERE state <> 2`) == 0
	})
}

func (e *Env) expectOnce(t *testing.T, jobs []string) {
	t.Helper()
	effects := e.Effects(t)
	if len(effects) != len(jobs) {
		t.Errorf("%d jobs have effects, want %d", len(effects), len(jobs))
	}
	for _, id := range jobs {
		if effects[id] != 1 {
			t.Errorf("%q has %d effects", id, effects[id])
		}
	}
}

func sharesInbox(t *testing.T, e *Env) {
	jobs := ids("job", 300)
	e.Accept(t, jobs...)
	for range 4 {
		start(t, e.processorOn(t, e.NewRepository(t, inbox.Config{}), inbox.ProcessorConfig{Workers: 2, BatchSize: 10}))
	}
	e.processed(t, len(jobs))
	e.expectOnce(t, jobs)
	for _, id := range jobs {
		if n := e.Calls(id); n != 1 {
			t.Errorf("the handler of %q was called %d times", id, n)
		}
	}
}

func herdOfRetries(t *testing.T, e *Env) {
	jobs := ids("job", 200)
	for _, id := range jobs {
		e.On(id, func(ctx context.Context, job Job) error {
			if e.Calls(job.ID) == 1 {
				return inbox.RetryAfter(time.Hour, errors.New("later"))
			}
			return e.Effect(ctx, job.ID)
		})
	}
	e.Accept(t, jobs...)
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
	e.MakeDue(t)
	e.drainAll(t, 8, inbox.ProcessorConfig{})
	e.expectOnce(t, jobs)
	for _, id := range jobs {
		e.Expect(t, id, Processed, 1)
		if n := e.Calls(id); n != 2 {
			t.Errorf("the handler of %q was called %d times, want 2", id, n)
		}
	}
}

// limitedJob is a message under a name of its own.
type limitedJob struct {
	ID string `json:"id"`
}

// bindLimited registers limitedJob as "limited".
func (e *Env) bindLimited(do func(ctx context.Context, id string) error) {
	inbox.Register[limitedJob](e.Names, "limited")
	mediator.BindCommand(e.Requests, func(ctx context.Context, job limitedJob) error { return do(ctx, job.ID) })
}

func (e *Env) acceptLimited(t *testing.T, jobs ...string) {
	t.Helper()
	entries := make([]inbox.Entry, len(jobs))
	for i, id := range jobs {
		entries[i] = inbox.Entry{MessageID: id, Message: limitedJob{ID: id}}
	}
	if _, err := e.Repo.Accept(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
}

func limitsConcurrency(t *testing.T, e *Env) {
	const limit = 2
	var now, most atomic.Int32
	gate := make(chan struct{})
	e.bindLimited(func(ctx context.Context, id string) error {
		n := now.Add(1)
		defer now.Add(-1)
		for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
		}
		select {
		case <-gate:
		case <-ctx.Done():
			return ctx.Err()
		}
		return e.Effect(ctx, id)
	})
	start(t, e.Processor(t, inbox.ProcessorConfig{
		Workers:      6,
		BatchSize:    2,
		PollInterval: time.Hour,
		Names:        map[string]inbox.Policy{"limited": {Concurrency: limit}},
	}))
	limited, others := ids("limited", 60), ids("other", 20)
	e.acceptLimited(t, limited...)
	if e.Postgres() { // SQLite has one writer, and the limited ones have it
		Eventually(t, "the limit is reached", func() bool { return now.Load() == limit })
		e.Accept(t, others...)
		e.processed(t, len(others))
		close(gate)
	} else {
		close(gate)
		e.Accept(t, others...)
	}
	e.processed(t, len(limited)+len(others))
	if n := most.Load(); n > limit {
		t.Errorf("%d handlers at once, want at most %d", n, limit)
	}
}

func namesTakeTurns(t *testing.T, e *Env) {
	e.bindLimited(e.Effect)
	e.Accept(t, ids("deep", 200)...)
	e.acceptLimited(t, ids("late", 5)...)
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{BatchSize: 10}))
	last := e.Count(t, `SELECT count(*) FROM effects WHERE n <= (SELECT max(n) FROM effects WHERE job LIKE 'late%')`)
	if last > 2*10+5 {
		t.Errorf("the last of 5 late messages was number %d, behind a backlog of 200", last)
	}
}

// sizes is a hook that counts the effects of each committed transaction.
type sizes struct {
	mu    sync.Mutex
	open  int
	sizes []int
}

func (s *sizes) BeforeQuery(ctx context.Context, _ *bun.QueryEvent) context.Context { return ctx }

func (s *sizes) AfterQuery(_ context.Context, event *bun.QueryEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch event.Query {
	case "COMMIT":
		if s.open > 0 {
			s.sizes = append(s.sizes, s.open)
		}
		s.open = 0
	case "BEGIN", "ROLLBACK":
		s.open = 0
	case "effect":
		s.open++
	}
}

func batchAdapts(t *testing.T, e *Env) {
	const size = 16
	seen := &sizes{}
	repo, err := inbox.NewRepository(e.DB.WithQueryHook(seen), e.Names, inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	jobs := ids("job", 200)
	for _, id := range jobs {
		e.On(id, func(ctx context.Context, job Job) error {
			seen.AfterQuery(ctx, &bun.QueryEvent{Query: "effect"})
			if err := e.Effect(ctx, job.ID); err != nil || job.ID != jobs[3] {
				return err
			}
			return inbox.Permanent(errors.New("the one that fails the first batch"))
		})
	}
	e.Accept(t, jobs...)
	e.Drain(t, e.processorOn(t, repo, inbox.ProcessorConfig{BatchSize: size}))
	var batches []int
	for _, n := range seen.sizes {
		if n > 1 {
			batches = append(batches, n)
		}
	}
	if len(batches) == 0 || batches[0] > size/2 {
		t.Fatalf("batches after a failed one of %d: %v, want half of it first", size, batches)
	}
	reached := false
	for i, n := range batches {
		reached = reached || n == size
		if n > size || i > 0 && i < len(batches)-1 && n < batches[i-1] {
			t.Errorf("batches %v: want them to grow up to %d", batches, size)
			break
		}
	}
	if !reached {
		t.Errorf("batches %v: never %d again", batches, size)
	}
	e.Expect(t, jobs[3], Dead, 1)
}

func batchEndsEarly(t *testing.T, e *Env) {
	seen := &sizes{}
	repo, err := inbox.NewRepository(e.DB.WithQueryHook(seen), e.Names, inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	jobs := ids("job", 6)
	for _, id := range jobs {
		e.On(id, func(ctx context.Context, job Job) error {
			seen.AfterQuery(ctx, &bun.QueryEvent{Query: "effect"})
			time.Sleep(30 * time.Millisecond) // a handler that takes its time
			return e.Effect(ctx, job.ID)
		})
	}
	e.Accept(t, jobs...)
	e.Drain(t, e.processorOn(t, repo, inbox.ProcessorConfig{BatchDuration: 50 * time.Millisecond}))
	for _, n := range seen.sizes {
		if n > 2 {
			t.Errorf("batches of %v handlers of 30 ms in 50 ms", seen.sizes)
			break
		}
	}
	e.expectOnce(t, jobs)
}

func acceptGetsIn(t *testing.T, e *Env) {
	if e.Postgres() {
		t.Skip("PostgreSQL locks rows: an accept never waits for a handler")
	}
	jobs := ids("slow", 40)
	var started atomic.Int32
	for _, id := range jobs {
		e.On(id, func(ctx context.Context, job Job) error {
			started.Add(1)
			time.Sleep(50 * time.Millisecond) // a handler that takes its time
			return e.Effect(ctx, job.ID)
		})
	}
	e.Accept(t, jobs...)
	r := start(t, e.Processor(t, inbox.ProcessorConfig{BatchDuration: time.Minute}))
	Eventually(t, "a handler runs", func() bool { return started.Load() > 0 })
	for i := range 8 {
		before := started.Load()
		e.Accept(t, fmt.Sprint("quick", i))
		// One may start just before the accept asks for its turn, and one just
		// after it has committed.
		if n := started.Load() - before; n > 2 {
			t.Errorf("%d handlers started while an accept waited", n)
		}
	}
	r.stop(t)
}

func conflictingProcessors(t *testing.T, e *Env) {
	jobs := ids("job", 120)
	e.Accept(t, jobs...)
	e.drainAll(t, 4, inbox.ProcessorConfig{BatchSize: 5, Isolation: sql.LevelSerializable})
	e.expectOnce(t, jobs)
	for _, id := range jobs {
		e.Expect(t, id, Processed, 0)
	}
}
