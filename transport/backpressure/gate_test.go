package backpressure_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/mediator"
	"github.com/letterbox-go/letterbox/transport/backpressure"
)

type job struct {
	Fail bool
}

type chore struct{}

// env is an inbox whose clock and queries the test sees.
type env struct {
	db      *bun.DB
	repo    *inbox.Repository
	mu      sync.Mutex
	now     time.Time
	queries atomic.Int64
	broken  atomic.Bool
}

func (e *env) clock() time.Time { e.mu.Lock(); defer e.mu.Unlock(); return e.now }

func (e *env) pass(d time.Duration) { e.mu.Lock(); defer e.mu.Unlock(); e.now = e.now.Add(d) }

// BeforeQuery counts the queries for the backlog, and breaks them on demand.
func (e *env) BeforeQuery(ctx context.Context, query *bun.QueryEvent) context.Context {
	if strings.Contains(query.Query, "inbox_queue") && strings.Contains(query.Query, "SELECT count(*)") {
		e.queries.Add(1)
	}
	if e.broken.Load() {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return ctx
	}
	return ctx
}

func (e *env) AfterQuery(context.Context, *bun.QueryEvent) {}

func databases(t *testing.T, test func(t *testing.T, e *env)) {
	for name, open := range map[string]func(testing.TB) *bun.DB{"PostgreSQL": testdb.PGX, "SQLite": testdb.SQLite} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := &env{db: open(t), now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
			e.db = e.db.WithQueryHook(e)
			names := inbox.NewNameMap()
			inbox.Register[job](names, "job")
			inbox.Register[chore](names, "chore")
			var err error
			if e.repo, err = inbox.NewRepository(e.db, names, inbox.Config{Clock: e.clock}); err != nil {
				t.Fatal(err)
			}
			if err := e.repo.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			test(t, e)
		})
	}
}

func (e *env) accept(t *testing.T, from, to int, due time.Time) {
	t.Helper()
	var entries []inbox.Entry
	for i := from; i < to; i++ {
		entries = append(entries, inbox.Entry{MessageID: fmt.Sprint(i), Message: job{}, Due: due})
	}
	if _, err := e.repo.Accept(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
}

func (e *env) drain(t *testing.T, verdict error) {
	t.Helper()
	requests := mediator.NewRequestMap()
	mediator.BindCommand(requests, func(context.Context, job) error { return verdict })
	p, err := inbox.NewProcessor(e.repo, inbox.ProcessorConfig{Requests: mediator.NewRequestMediator(requests)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (e *env) gate(t *testing.T, config backpressure.Config) *backpressure.Gate {
	t.Helper()
	config.Clock = e.clock
	gate, err := backpressure.New(e.repo, config)
	if err != nil {
		t.Fatal(err)
	}
	return gate
}

func expect(t *testing.T, gate *backpressure.Gate, want bool) {
	t.Helper()
	saturated, retryAfter, err := gate.Saturated(t.Context())
	if err != nil || saturated != want || (retryAfter > 0) != want {
		t.Errorf("saturated %v, retry after %v, %v; want %v", saturated, retryAfter, err, want)
	}
}

func TestMaxUnfinished(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, e *env) {
		gate := e.gate(t, backpressure.Config{MaxUnfinished: 5})
		expect(t, gate, false)
		e.accept(t, 0, 3, time.Time{})
		e.accept(t, 3, 4, e.now.Add(time.Hour)) // due later: unfinished as well
		e.pass(time.Second)
		expect(t, gate, false)
		e.accept(t, 4, 5, time.Time{})
		expect(t, gate, false) // the answer is not old yet
		e.pass(time.Second)
		expect(t, gate, true)
		e.drain(t, nil)
		e.pass(time.Second)
		expect(t, gate, false)
		e.accept(t, 5, 12, time.Time{})
		e.drain(t, inbox.Permanent(errors.New("no"))) // the dead are not waiting
		e.pass(time.Second)
		expect(t, gate, false)
	})
}

func TestMaxAge(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, e *env) {
		gate := e.gate(t, backpressure.Config{MaxAge: time.Minute})
		expect(t, gate, false)
		e.accept(t, 0, 1, e.now.Add(time.Hour))
		e.accept(t, 1, 2, time.Time{})
		e.pass(59 * time.Second)
		expect(t, gate, false)
		e.pass(time.Second)
		expect(t, gate, true)
		e.drain(t, nil)
		e.pass(time.Second)
		expect(t, gate, false)
		e.pass(2 * time.Hour) // the other one is late now
		expect(t, gate, true)
	})
}

func TestTheDatabaseIsAskedOncePerRefresh(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, e *env) {
		gate := e.gate(t, backpressure.Config{MaxUnfinished: 5, Refresh: time.Second})
		var running sync.WaitGroup
		for range 8 {
			running.Go(func() {
				for range 50 {
					_, _, _ = gate.Saturated(t.Context())
				}
			})
		}
		running.Wait()
		if n := e.queries.Load(); n != 1 {
			t.Errorf("%d queries for 400 calls", n)
		}
		e.pass(time.Second)
		expect(t, gate, false)
		if n := e.queries.Load(); n != 2 {
			t.Errorf("%d queries", n)
		}
	})
}

func TestTheLastAnswerHoldsWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, e *env) {
		gate := e.gate(t, backpressure.Config{MaxUnfinished: 1})
		e.accept(t, 0, 1, time.Time{})
		expect(t, gate, true)
		e.broken.Store(true)
		e.pass(time.Second)
		if saturated, retryAfter, err := gate.Saturated(t.Context()); !saturated || retryAfter == 0 || err == nil {
			t.Errorf("%v, %v, %v", saturated, retryAfter, err)
		}
		e.broken.Store(false)
		e.drain(t, nil)
		e.pass(time.Second)
		expect(t, gate, false)
	})
}

func TestACallerThatIsGoneDoesNotSpoilTheAnswer(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, e *env) {
		e.accept(t, 0, 1, time.Time{})
		gate := e.gate(t, backpressure.Config{MaxUnfinished: 1})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if saturated, _, err := gate.Saturated(ctx); !saturated || err != nil {
			t.Errorf("%v, %v", saturated, err)
		}
	})
}

func TestMessagesUnderUnknownNamesDoNotCount(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, e *env) {
		names := inbox.NewNameMap()
		inbox.Register[job](names, "of another service")
		repo, err := inbox.NewRepository(e.db, names, inbox.Config{Clock: e.clock})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := repo.Accept(t.Context(), []inbox.Entry{{MessageID: "x", Message: job{}}}); err != nil {
			t.Fatal(err)
		}
		e.pass(time.Hour)
		expect(t, e.gate(t, backpressure.Config{MaxUnfinished: 1, MaxAge: time.Minute}), false)
	})
}

func TestABacklogIsCountedUpToItsLimit(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, e *env) {
		e.accept(t, 0, 10, time.Time{})
		for i := range 10 { // under another name
			if _, err := e.repo.Accept(t.Context(), []inbox.Entry{{MessageID: fmt.Sprint(i), Message: chore{}}}); err != nil {
				t.Fatal(err)
			}
		}
		for limit, want := range map[int64]int64{-1: 0, 0: 0, 1: 1, 10: 10, 15: 15, 20: 20, 100: 20} {
			backlog, err := e.repo.Backlog(t.Context(), limit)
			if err != nil || backlog.Pending != want {
				t.Errorf("limit %d: %+v, %v", limit, backlog, err)
			}
		}
	})
}

func TestConfigProblems(t *testing.T) {
	t.Parallel()
	_, err := backpressure.New(&inbox.Repository{}, backpressure.Config{MaxUnfinished: -1, MaxAge: -1, Refresh: -1, RetryAfter: -1})
	for _, want := range []string{"MaxUnfinished", "MaxAge", "Refresh", "RetryAfter"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: does not speak of %s", err, want)
		}
	}
	if _, err := backpressure.New(&inbox.Repository{}, backpressure.Config{}); err == nil {
		t.Error("no mark, no error")
	}
	if _, err := backpressure.New(nil, backpressure.Config{MaxAge: 1}); err == nil {
		t.Error("no repository, no error")
	}
}
