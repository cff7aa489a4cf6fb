package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
)

var deadlineCases = []Case{
	{
		Name: "a deadline in mid-query is charged to its message",
		Rule: "It costs PostgreSQL's connection and SQLite's transaction, but only the guilty message an attempt, whether the handler reports it or not.",
		Body: deadlineInQuery,
	},
	{
		Name: "the inbox's timeout ends a query",
		Rule: "A handler that is in a statement when its time is up is charged once, with a text that says so.",
		Body: timeoutInQuery,
	},
	{
		Name: "a handler that ignores its timeout is abandoned",
		Rule: "After the grace its transaction is rolled back, it is charged and counted, its neighbours are processed, and Run goes on.",
		Body: ignoredTimeout,
	},
	{
		Name: "a handler that asks the pool for another connection cannot hang the inbox",
		Rule: "With one connection in the pool it runs into its timeout, is charged, and the next message is processed.",
		Body: secondConnection,
	},
	{
		Name: "one connection is enough",
		Rule: "The inbox takes no second connection while it holds one: with failures, deaths and hooks.",
		Body: oneConnection,
	},
}

// slowWrite is a write that takes far longer than any test.
func (e *Env) slowWrite() string {
	if e.Postgres() {
		return `INSERT INTO sink SELECT 1 FROM pg_sleep(60)`
	}
	return `INSERT INTO sink ` + e.series(1_000_000_000)
}

func deadlineInQuery(t *testing.T, e *Env) {
	e.Exec(t, `CREATE TABLE sink (n INTEGER)`)
	in := func(query string, report func(error) error) func(context.Context, Job) error {
		return func(ctx context.Context, job Job) error {
			if err := e.Effect(ctx, job.ID); err != nil {
				return err
			}
			short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			err := e.sql(short, query)
			if err == nil {
				return errors.New("the query came to its end")
			}
			return report(err)
		}
	}
	wrapped := func(err error) error { return fmt.Errorf("look: %w", err) }
	opaque := func(error) error { return errors.New("look: it took too long") }
	swallowed := func(error) error { return nil }
	e.among(t, inbox.ProcessorConfig{},
		faulty{id: "write, wrapped", do: in(e.slowWrite(), wrapped), text: "look"},
		faulty{id: "write, without its cause", do: in(e.slowWrite(), opaque), text: "took too long"},
		faulty{id: "write, swallowed", do: in(e.slowWrite(), swallowed), text: "inbox: the handler"},
		faulty{id: "read, wrapped", do: in(e.slow(), wrapped), text: "look"},
	)
	if n := e.Count(t, `SELECT count(*) FROM sink`); n != 0 {
		t.Errorf("%d rows of what was broken off", n)
	}
}

func timeoutInQuery(t *testing.T, e *Env) {
	e.Exec(t, `CREATE TABLE sink (n INTEGER)`)
	do := func(report func(error) error) func(context.Context, Job) error {
		return func(ctx context.Context, job Job) error {
			if err := e.Effect(ctx, job.ID); err != nil {
				return err
			}
			return report(e.sql(context.WithoutCancel(ctx), e.slowWrite()))
		}
	}
	e.among(t, inbox.ProcessorConfig{Timeout: 1500 * time.Millisecond},
		faulty{id: "reported", do: do(func(err error) error { return err }), text: "exceeded its timeout"},
		faulty{id: "swallowed", do: do(func(error) error { return nil }), text: "inbox: the handler"},
	)
}

func ignoredTimeout(t *testing.T, e *Env) {
	release := make(chan struct{})
	defer close(release)
	e.On("stuck", func(ctx context.Context, job Job) error {
		if err := e.Effect(ctx, job.ID); err != nil {
			return err
		}
		<-release
		return nil
	})
	e.Accept(t, "a", "stuck", "b")
	p := e.Processor(t, inbox.ProcessorConfig{Workers: 1, Timeout: 1500 * time.Millisecond, HandlerGrace: 50 * time.Millisecond, Backoff: later})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	processed := func(n int) func() bool {
		return func() bool { return e.Count(t, `SELECT count(*) FROM inbox_messages WHERE status = 1`) == n }
	}
	Eventually(t, "the neighbours are processed", processed(2))
	e.Accept(t, "c")
	Eventually(t, "the processor goes on", processed(3))
	stop()
	if err := <-ended; err == nil {
		t.Error("Run does not mention the abandoned handler")
	}
	if row := e.Expect(t, "stuck", Pending, 1); row.LastError == "" {
		t.Error("no error is kept")
	}
	if calls := e.Calls("stuck"); calls != 1 {
		t.Errorf("the stuck handler ran %d times", calls)
	}
	if effects := e.Effects(t); effects["stuck"] != 0 {
		t.Errorf("effects: %v", effects)
	}
}

func secondConnection(t *testing.T, e *Env) {
	e.DB.SetMaxOpenConns(1)
	e.among(t, inbox.ProcessorConfig{Timeout: 1500 * time.Millisecond}, faulty{
		id: "guilty",
		do: func(ctx context.Context, job Job) error {
			_, err := e.DB.ExecContext(ctx, `INSERT INTO effects (job) VALUES (?)`, job.ID) // not through inbox.DB
			return err
		},
		text: "exceeded its timeout",
	})
}

func oneConnection(t *testing.T, e *Env) {
	e.DB.SetMaxOpenConns(1)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	e.On("dies", func(ctx context.Context, job Job) error { return errors.Join(e.Effect(ctx, job.ID), errBoom) })
	e.On("is broken off", func(ctx context.Context, job Job) error {
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		return e.sql(short, e.slow())
	})
	e.On("nests", func(ctx context.Context, job Job) error {
		tx, err := inbox.DB(ctx, e.DB).BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		return errors.Join(e.Effect(ctx, job.ID), tx.Commit())
	})
	if _, err := e.Repo.Accept(ctx, e.Entries("a", "dies", "is broken off", "nests", "b")); err != nil {
		t.Fatal(err)
	}
	p := e.Processor(t, inbox.ProcessorConfig{MaxAttempts: 2, OnDead: func(ctx context.Context, m inbox.Info, _ error) error {
		return e.Effect(ctx, "buried "+m.MessageID)
	}})
	for e.Row(t, "dies").Status != Dead || e.Row(t, "is broken off").Status != Dead {
		if _, err := p.Drain(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"a", "b", "nests"} {
		e.Expect(t, id, Processed, 0)
	}
	if effects := e.Effects(t); effects["buried dies"] != 1 || effects["buried is broken off"] != 1 || effects["dies"] != 0 {
		t.Errorf("effects: %v", effects)
	}
}
