package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
)

var connectionCases = []Case{
	{
		Name: "a transaction that the database wants again is no attempt",
		Rule: "Serialization failures and deadlocks in a handler are retried by their code, not charged, and bounded.",
		Body: retriedByCode,
	},
	{
		Name: "handlers that lock in opposite order are both processed",
		Rule: "The victim of a deadlock is run again and not charged.",
		Body: deadlock,
	},
	{
		Name: "a lost connection is no attempt",
		Rule: "When the session of a handler is terminated, nobody is charged, and all messages are processed in the end.",
		Body: lostConnection,
	},
	{
		Name: "a message that always loses its connection ends",
		Rule: "After MaxInterruptions it is dead with a text that says so.",
		Body: alwaysLost,
	},
	{
		Name: "a read-only server is waited for",
		Rule: "When the server turns read-only under the pool, nobody is charged, and processing goes on without a restart when it is over.",
		Body: readOnly,
	},
	{
		Name: "a read-only transaction is no attempt",
		Rule: "25006 in a handler is not charged.",
		Body: readOnlyTransaction,
	},
}

func (e *Env) postgresOnly(t *testing.T, why string) {
	t.Helper()
	if !e.Postgres() {
		t.Skip("SQLite: " + why)
	}
}

// raise is a statement that fails with a SQLSTATE.
func raise(code string) string {
	return fmt.Sprintf(`DO $$ BEGIN RAISE EXCEPTION 'вЗаимоблокировка' USING ERRCODE = '%s'; END $$`, code)
}

func retriedByCode(t *testing.T, e *Env) {
	e.postgresOnly(t, "a handler has the only write lock and is never asked to try again")
	reports := map[string]func(error) error{
		"wrapped":   func(err error) error { return fmt.Errorf("credit: %w", err) },
		"opaque":    func(error) error { return errBoom },
		"swallowed": func(error) error { return nil },
	}
	var ids []string
	for _, code := range []string{"40001", "40P01"} {
		for name, report := range reports {
			id := code + " " + name
			ids = append(ids, id)
			var runs int
			e.On(id, func(ctx context.Context, job Job) error {
				if err := e.Effect(ctx, job.ID); err != nil {
					return err
				}
				if runs++; runs <= 4 {
					return report(e.sql(ctx, raise(code)))
				}
				return nil
			})
		}
	}
	e.On("for ever", func(ctx context.Context, job Job) error {
		return errors.Join(e.Effect(ctx, job.ID), e.sql(ctx, raise("40001")))
	})
	e.On("another error", func(ctx context.Context, job Job) error {
		return errors.Join(e.Effect(ctx, job.ID), e.sql(ctx, raise("22000")))
	})
	e.Accept(t, append(ids, "for ever", "another error", "healthy")...)
	e.finish(t, e.Processor(t, inbox.ProcessorConfig{MaxInterruptions: 5, MaxAttempts: 2}))
	for _, id := range ids {
		e.Expect(t, id, Processed, 0)
	}
	if row := e.Expect(t, "for ever", Dead, 0); !strings.Contains(row.LastError, "gave up after 5 interrupted runs") {
		t.Errorf("the error says %q", row.LastError)
	}
	e.Expect(t, "another error", Dead, 2)
	e.Expect(t, "healthy", Processed, 0)
	e.expectEffects(t, append(ids, "healthy")...)
}

func deadlock(t *testing.T, e *Env) {
	e.postgresOnly(t, "there is one writer")
	e.Exec(t, `CREATE TABLE accounts (id INTEGER PRIMARY KEY, cents INTEGER NOT NULL DEFAULT 0)`)
	e.Exec(t, `INSERT INTO accounts VALUES (1), (2)`)
	var both sync.WaitGroup // holds back the first run of each until both have their first lock
	both.Add(2)
	move := func(first, second int) func(context.Context, Job) error {
		once := sync.Once{}
		return func(ctx context.Context, job Job) error {
			if err := e.sql(ctx, `UPDATE accounts SET cents = cents + 1 WHERE id = ?`, first); err != nil {
				return err
			}
			once.Do(func() { both.Done(); both.Wait() })
			return errors.Join(e.sql(ctx, `UPDATE accounts SET cents = cents + 1 WHERE id = ?`, second), e.Effect(ctx, job.ID))
		}
	}
	e.On("a", move(1, 2))
	e.On("b", move(2, 1))
	e.Accept(t, "a", "b")
	var group sync.WaitGroup
	for range 2 {
		p := e.Processor(t, inbox.ProcessorConfig{BatchSize: 1})
		group.Go(func() {
			if _, err := p.Drain(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	e.finish(t, e.Processor(t, inbox.ProcessorConfig{}))
	e.Expect(t, "a", Processed, 0)
	e.Expect(t, "b", Processed, 0)
	e.expectEffects(t, "a", "b")
	if n := e.Count(t, `SELECT sum(cents) FROM accounts`); n != 4 {
		t.Errorf("the accounts hold %d", n)
	}
	if calls := e.Calls("a") + e.Calls("b"); calls < 3 {
		t.Errorf("%d runs: there was no deadlock", calls)
	}
}

// terminate ends the session of the handler.
const terminate = `SELECT pg_terminate_backend(pg_backend_pid())`

func lostConnection(t *testing.T, e *Env) {
	e.postgresOnly(t, "it has no connection to lose")
	reports := map[string]func(error) error{
		"wrapped":   func(err error) error { return fmt.Errorf("credit: %w", err) },
		"opaque":    func(error) error { return errBoom },
		"swallowed": func(error) error { return nil },
	}
	ids := []string{"first"}
	for name, report := range reports {
		var runs int
		e.On(name, func(ctx context.Context, job Job) error {
			if err := e.Effect(ctx, job.ID); err != nil {
				return err
			}
			if runs++; runs <= 3 {
				return report(e.sql(ctx, terminate))
			}
			return nil
		})
		ids = append(ids, name, "after "+name)
	}
	e.Accept(t, ids...)
	e.finish(t, e.Processor(t, inbox.ProcessorConfig{MaxAttempts: 1}))
	for _, id := range ids {
		e.Expect(t, id, Processed, 0)
	}
	e.expectEffects(t, ids...)
}

func alwaysLost(t *testing.T, e *Env) {
	e.postgresOnly(t, "it has no connection to lose")
	for _, swallowed := range []bool{true, false} {
		e.On(fmt.Sprintf("swallowed: %v", swallowed), func(ctx context.Context, job Job) error {
			if err := errors.Join(e.Effect(ctx, job.ID), e.sql(ctx, terminate)); !swallowed {
				return err
			}
			return nil
		})
	}
	ids := []string{"swallowed: true", "swallowed: false"}
	e.Accept(t, "a", ids[0], "b", ids[1], "c")
	e.finish(t, e.Processor(t, inbox.ProcessorConfig{MaxInterruptions: 4}))
	for _, id := range ids {
		if row := e.Expect(t, id, Dead, 0); !strings.Contains(row.LastError, "gave up after 4 interrupted runs") {
			t.Errorf("%s: the error says %q", id, row.LastError)
		}
	}
	e.expectEffects(t, "a", "b", "c")
}

func readOnlyTransaction(t *testing.T, e *Env) {
	e.postgresOnly(t, "there is no such mode for one transaction")
	var runs int
	e.On("guilty", func(ctx context.Context, job Job) error {
		if runs++; runs > 3 {
			return e.Effect(ctx, job.ID)
		}
		return errors.Join(e.sql(ctx, `SET TRANSACTION READ ONLY`), e.Effect(ctx, job.ID))
	})
	e.Accept(t, "a", "guilty", "b")
	e.finish(t, e.Processor(t, inbox.ProcessorConfig{MaxAttempts: 1}))
	for _, id := range []string{"a", "guilty", "b"} {
		e.Expect(t, id, Processed, 0)
	}
	e.expectEffects(t, "a", "guilty", "b")
}

// setReadOnly changes what new sessions get, and ends all others but its own.
func (e *Env) setReadOnly(t *testing.T, on bool) {
	t.Helper()
	conn, err := e.DB.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var database string
	if err := conn.QueryRowContext(t.Context(), `SELECT quote_ident(current_database())`).Scan(&database); err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{
		`SET default_transaction_read_only = off`,
		fmt.Sprintf(`ALTER DATABASE %s SET default_transaction_read_only = %v`, database, on),
		fmt.Sprintf(`SET default_transaction_read_only = %v`, on), // of this one, which goes back to the pool
	} {
		if _, err := conn.ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	if on {
		if _, err := conn.ExecContext(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`); err != nil {
			t.Fatal(err)
		}
	}
}

func readOnly(t *testing.T, e *Env) {
	e.postgresOnly(t, "a file does not turn read-only under an open connection")
	var ids []string
	for i := range 10 {
		ids = append(ids, fmt.Sprint("job ", i))
	}
	e.Accept(t, ids...)
	e.setReadOnly(t, true)
	p := e.Processor(t, inbox.ProcessorConfig{MaxAttempts: 1, PollInterval: 20 * time.Millisecond})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	time.Sleep(500 * time.Millisecond) // it keeps trying meanwhile
	for _, id := range ids {
		if row := e.Expect(t, id, Pending, 0); row.Interruptions != 0 {
			t.Errorf("%s was interrupted %d times", id, row.Interruptions)
		}
	}
	e.setReadOnly(t, false)
	Eventually(t, "all are processed", func() bool {
		return e.Count(t, `SELECT count(*) FROM inbox_messages WHERE status = 1`) == len(ids)
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	e.expectEffects(t, ids...)
}
