package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/mediator"
)

var retryCases = []Case{
	{
		Name: "a permanent error is the end",
		Rule: "The message is dead after one attempt, however the verdict is wrapped.",
		Body: permanent,
	},
	{
		Name: "a handler can choose its delay",
		Rule: "RetryAfter is an attempt, and the message is not due before the delay is over.",
		Body: retryAfter,
	},
	{
		Name: "a postponement is not an attempt",
		Rule: "Postponed fifty times and failed once is one attempt; what was written before a postponement is undone.",
		Body: postponed,
	},
	{
		Name: "a message is dead after its attempts",
		Rule: "It is kept and visible, nobody runs it again, and others go on. Names can have limits of their own.",
		Body: deadAfterAttempts,
	},
	{
		Name: "the hook of a death writes with it",
		Rule: "What OnDead writes commits with the death; what the handler wrote does not.",
		Body: hookWrites,
	},
	{
		Name: "a failing hook does not keep a message alive",
		Rule: "Whatever OnDead does, the message is dead, and what the hook wrote is undone.",
		Body: hookFails,
	},
	{
		Name: "retries become due in their time",
		Rule: "A failed message is not due before its backoff is over, by the database's clock.",
		Body: backoffHolds,
	},
}

// wrappings are how a verdict may reach the inbox.
var wrappings = map[string]func(error) error{
	"bare":    func(err error) error { return err },
	"wrapped": func(err error) error { return fmt.Errorf("handle: %w", err) },
	"joined":  func(err error) error { return errors.Join(errBoom, err) },
}

func permanent(t *testing.T, e *Env) {
	inbox.Register[Notice](e.Names, "notice")
	mediator.BindEvent(e.Events, "gives up", func(context.Context, Notice) error { return inbox.Permanent(errBoom) })
	ids := []string{"notice"}
	for name, wrap := range wrappings {
		for _, written := range []bool{true, false} {
			id := fmt.Sprintf("%s, written: %v", name, written)
			ids = append(ids, id)
			e.On(id, func(ctx context.Context, job Job) error {
				if written {
					if err := e.Effect(ctx, job.ID); err != nil {
						return err
					}
				}
				return wrap(inbox.Permanent(errBoom))
			})
			e.Accept(t, id)
		}
	}
	if _, err := e.Repo.Accept(t.Context(), []inbox.Entry{{MessageID: "notice", Source: "test", Message: Notice{}}}); err != nil {
		t.Fatal(err)
	}
	e.Accept(t, "healthy")
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
	for _, id := range ids {
		if row := e.Expect(t, id, Dead, 1); !strings.Contains(row.LastError, "boom") {
			t.Errorf("%s: the error says %q", id, row.LastError)
		}
	}
	e.Expect(t, "healthy", Processed, 0)
	e.expectEffects(t, "healthy")
}

// secondsUntilDue is how far off a retry is. SQLite's own 'now' has milliseconds
// only; its clock is this process's.
func (e *Env) secondsUntilDue(t *testing.T, id string) float64 {
	t.Helper()
	const from = ` FROM inbox_queue q JOIN inbox_messages m ON m.id = q.id WHERE m.message_id = ?`
	if e.Postgres() {
		var seconds float64
		if err := e.DB.NewRaw(`SELECT EXTRACT(epoch FROM q.due - clock_timestamp())::float8`+from, id).Scan(t.Context(), &seconds); err != nil {
			t.Fatal(err)
		}
		return seconds
	}
	var text string
	if err := e.DB.NewRaw(`SELECT q.due`+from, id).Scan(t.Context(), &text); err != nil {
		t.Fatal(err)
	}
	due, err := time.Parse("2006-01-02T15:04:05.000000Z", text)
	if err != nil {
		t.Fatal(err)
	}
	return time.Until(due).Seconds()
}

func retryAfter(t *testing.T, e *Env) {
	for name, wrap := range wrappings {
		e.On(name, func(context.Context, Job) error { return wrap(inbox.RetryAfter(time.Hour, errBoom)) })
		e.Accept(t, name)
	}
	e.On("negative", func(ctx context.Context, job Job) error {
		if info, _ := inbox.FromContext(ctx); info.Attempt == 1 {
			return inbox.RetryAfter(-time.Hour, errBoom)
		}
		return e.Effect(ctx, job.ID)
	})
	e.On("endless", func(context.Context, Job) error { return inbox.RetryAfter(1<<63-1, errBoom) })
	e.Accept(t, "negative", "endless")
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
	for name := range wrappings {
		e.Expect(t, name, Pending, 1)
		if left := e.secondsUntilDue(t, name); left < 3000 || left > 3600 {
			t.Errorf("%s is due in %v s", name, left)
		}
	}
	e.Expect(t, "endless", Pending, 1)
	if left := e.secondsUntilDue(t, "endless"); left < 9*365*86400 {
		t.Errorf("endless is due in %v s", left)
	}
	Eventually(t, "a delay of less than nothing is over", func() bool {
		e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
		return e.Row(t, "negative").Status == Processed
	})
}

func postponed(t *testing.T, e *Env) {
	for name, wrap := range wrappings {
		var runs atomic.Int32
		e.On(name, func(ctx context.Context, job Job) error {
			if err := e.Effect(ctx, job.ID); err != nil {
				return err
			}
			info, _ := inbox.FromContext(ctx)
			switch n := runs.Add(1); {
			case info.Attempt == 2:
				return nil
			case n <= 100: // each postponement may have run twice
				return wrap(inbox.Postpone(0))
			}
			return errBoom
		})
		e.Accept(t, name)
	}
	p := e.Processor(t, inbox.ProcessorConfig{MaxAttempts: 2})
	e.finish(t, p)
	for name := range wrappings {
		e.Expect(t, name, Processed, 1)
		if calls := e.Calls(name); calls < 50 {
			t.Errorf("%s ran %d times", name, calls)
		}
	}
	e.On("later", func(context.Context, Job) error { return inbox.Postpone(time.Hour) })
	e.Accept(t, "later")
	e.Drain(t, p)
	e.Expect(t, "later", Pending, 0)
	if left := e.secondsUntilDue(t, "later"); left < 3000 || left > 3600 {
		t.Errorf("it is due in %v s", left)
	}
}

func deadAfterAttempts(t *testing.T, e *Env) {
	inbox.Register[Notice](e.Names, "notice")
	mediator.BindEvent(e.Events, "fails", func(context.Context, Notice) error { return errBoom })
	e.On("fails", func(ctx context.Context, job Job) error { return errors.Join(e.Effect(ctx, job.ID), errBoom) })
	if _, err := e.Repo.Accept(t.Context(), []inbox.Entry{{MessageID: "notice", Source: "test", Message: Notice{}}}); err != nil {
		t.Fatal(err)
	}
	e.Accept(t, "fails", "healthy")
	p := e.Processor(t, inbox.ProcessorConfig{MaxAttempts: 3, Names: map[string]inbox.Policy{"notice": {MaxAttempts: 1}}})
	e.finish(t, p)
	e.Expect(t, "fails", Dead, 3)
	e.Expect(t, "notice", Dead, 1)
	calls := e.Calls("fails")
	if calls < 3 || calls > 6 {
		t.Errorf("it ran %d times", calls)
	}
	e.Accept(t, "another")
	e.Drain(t, p)
	if again := e.Calls("fails"); again != calls {
		t.Error("a dead message was run")
	}
	e.expectEffects(t, "healthy", "another")
	stats, err := e.Repo.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if stats.Dead != 2 || stats.Names["job"].Dead != 1 || stats.Pending != 0 || stats.Processed != 2 {
		t.Errorf("the statistics say %+v", stats)
	}
	if row := e.Row(t, "fails"); string(row.Payload) != `{"id":"fails"}` || row.LastError != "boom" {
		t.Errorf("kept: %q, %q", row.Payload, row.LastError)
	}
}

func hookWrites(t *testing.T, e *Env) {
	var told []inbox.Info
	e.On("a", func(ctx context.Context, job Job) error { return errors.Join(e.Effect(ctx, job.ID), errBoom) })
	e.Accept(t, "healthy", "a")
	e.finish(t, e.Processor(t, inbox.ProcessorConfig{MaxAttempts: 2, OnDead: func(ctx context.Context, m inbox.Info, cause error) error {
		told = append(told, m)
		if !errors.Is(cause, errBoom) {
			t.Errorf("the hook was told %v", cause)
		}
		return e.Effect(ctx, "audit of "+m.MessageID)
	}}))
	e.Expect(t, "a", Dead, 2)
	e.expectEffects(t, "healthy", "audit of a")
	if len(told) != 1 || told[0].MessageID != "a" || told[0].Attempt != 2 {
		t.Errorf("the hook was told %+v", told)
	}
}

func hookFails(t *testing.T, e *Env) {
	e.Exec(t, `CREATE TABLE parents (id INTEGER PRIMARY KEY)`)
	e.Exec(t, `CREATE TABLE children (parent INTEGER NOT NULL REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED)`)
	hooks := map[string]func(ctx context.Context) error{
		"error":      func(context.Context) error { return errBoom },
		"panic":      func(context.Context) error { panic("hook") },
		"refused":    func(ctx context.Context) error { return e.sql(ctx, "COMMIT") },
		"bad SQL":    func(ctx context.Context) error { _ = e.sql(ctx, "SELECT nonsense"); return errBoom },
		"constraint": func(ctx context.Context) error { return e.sql(ctx, `INSERT INTO children VALUES (42)`) },
		"broken off": func(ctx context.Context) error { return e.brokenOff(ctx) },
		"time is up": func(ctx context.Context) error { return e.sql(context.WithoutCancel(ctx), e.slow()) },
		"of two":     func(context.Context) error { return nil },
		"rows behind": func(ctx context.Context) error {
			inbox.DB(ctx, e.DB).QueryRowContext(ctx, e.series(1000))
			return errBoom
		},
	}
	// These are recorded outside of the transaction that claimed them.
	slow := []string{"slow, constraint", "slow, broken off"}
	hooks[slow[0]], hooks[slow[1]] = hooks["constraint"], hooks["broken off"]
	var ids []string
	for id := range hooks {
		ids = append(ids, id)
		e.On(id, func(ctx context.Context, job Job) error {
			if slices.Contains(slow, id) {
				return errors.Join(e.sql(context.WithoutCancel(ctx), e.slow()), errBoom)
			}
			return errors.Join(e.Effect(ctx, "undone"), errBoom)
		})
	}
	e.Accept(t, append(ids, "healthy")...)
	e.finish(t, e.Processor(t, inbox.ProcessorConfig{MaxAttempts: 1, Timeout: 2 * time.Second, OnDead: func(ctx context.Context, m inbox.Info, _ error) error {
		if m.MessageID == "of two" {
			return nil
		}
		if err := e.Effect(ctx, "undone"); err != nil {
			return err
		}
		return hooks[m.MessageID](ctx)
	}}))
	for _, id := range ids {
		if row := e.Expect(t, id, Dead, 1); !strings.Contains(row.LastError, "boom") {
			t.Errorf("%s: the error says %q", id, row.LastError)
		}
	}
	e.Expect(t, "healthy", Processed, 0)
	e.expectEffects(t, "healthy")
}

// brokenOff runs into a deadline of its own in mid-query.
func (e *Env) brokenOff(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	return e.sql(short, e.slow())
}

func backoffHolds(t *testing.T, e *Env) {
	e.On("a", func(context.Context, Job) error { return errBoom })
	e.Accept(t, "a")
	p := e.Processor(t, inbox.ProcessorConfig{Backoff: later, MaxAttempts: 3})
	for n := 1; n <= 2; n++ {
		for range 3 {
			e.Drain(t, p)
		}
		e.Expect(t, "a", Pending, n)
		e.MakeDue(t)
	}
	e.Drain(t, p)
	e.Expect(t, "a", Dead, 3)
}
