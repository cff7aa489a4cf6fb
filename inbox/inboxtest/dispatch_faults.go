package inboxtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/letterbox-go/letterbox/inbox"
)

var faultCases = []Case{
	{
		Name: "a failing message harms nobody else",
		Rule: "Errors, panics and Goexit are charged to their message alone, once; the neighbours in the batch commit.",
		Body: failuresAmongNeighbours,
	},
	{
		Name: "any error text can be recorded",
		Rule: "Text that is invalid, endless, empty or panics is stored as valid UTF-8 without control characters, and cut.",
		Body: errorTexts,
	},
	{
		Name: "a swallowed SQL error is a failed attempt",
		Rule: "Where the database has ended the transaction, returning nil does not help; the attempt fails and says so, and the connection lives on.",
		Body: swallowedSQLError,
	},
	{
		Name: "an error among the rows that nobody asked for is a failed attempt",
		Rule: "A query that fails after its first row ends the transaction as any other; the neighbours commit.",
		Body: errorBehindRows,
	},
	{
		Name: "a statement that rolls everything back is a failed attempt",
		Rule: "Where the database gives the transaction up by itself, nothing that follows commits outside of it.",
		Body: rollbackByDatabase,
	},
	{
		Name: "a deferred constraint at COMMIT is charged to its message",
		Rule: "When it fires for one message of ten, nine are processed and the one is charged alone.",
		Body: deferredConstraint,
	},
	{
		Name: "what a handler leaves open harms nobody",
		Rule: "Unread rows are closed when the handler returns, and the next message has a working transaction.",
		Body: rowsLeftOpen,
	},
	{
		Name: "an attempt fails while a statement of it still runs",
		Rule: "A handler that returns while a goroutine of its own uses the transaction has not finished; neighbours are unharmed.",
		Body: statementStillRunning,
	},
}

var errBoom = errors.New("boom")

// typedNil is what a handler returns that declared its own error variable.
type typedNil struct{ inner error }

func (e *typedNil) Error() string { return e.inner.Error() }
func (e *typedNil) Unwrap() error { return e.inner }

type hostileText func() string

func (h hostileText) Error() string { return h() }

func failuresAmongNeighbours(t *testing.T, e *Env) {
	// written has the handler write before it fails.
	written := func(do func() error) func(context.Context, Job) error {
		return func(ctx context.Context, job Job) error {
			if err := e.Effect(ctx, job.ID); err != nil {
				return err
			}
			return do()
		}
	}
	bare := func(do func() error) func(context.Context, Job) error {
		return func(context.Context, Job) error { return do() }
	}
	panics := func(value any) func() error { return func() error { panic(value) } }
	fails := func() error { return errBoom }
	exits := func() error { runtime.Goexit(); return nil }
	e.among(t, inbox.ProcessorConfig{BatchSize: 100},
		faulty{id: "error", do: bare(fails), text: "boom"},
		faulty{id: "error after a write", do: written(fails), text: "boom"},
		faulty{id: "panic", do: bare(panics("bad value")), text: "panic: bad value"},
		faulty{id: "panic after a write", do: written(panics("bad value")), text: "panic: bad value"},
		faulty{id: "nil panic", do: written(panics(nil)), text: "panic"},
		faulty{id: "Goexit", do: bare(exits), text: "Goexit"},
		faulty{id: "Goexit after a write", do: written(exits), text: "Goexit"},
		faulty{id: "typed nil", do: written(func() error { var err *typedNil; return err }), text: "panic"},
		faulty{id: "foreign network error", do: written(func() error { return &net.OpError{Op: "dial", Err: errBoom} }), text: "dial"},
		faulty{id: "foreign end of file", do: written(func() error { return fmt.Errorf("call the bank: %w", io.ErrUnexpectedEOF) }), text: "call the bank"},
		faulty{id: "foreign deadline", do: written(func() error { return fmt.Errorf("call the bank: %w", context.DeadlineExceeded) }), text: "call the bank"},
	)
}

func errorTexts(t *testing.T, e *Env) {
	texts := map[string]func() string{
		"NUL":           func() string { return "a\x00b\x01c" },
		"invalid":       func() string { return "bad \xff\xfe byte" },
		"5 MB":          func() string { return strings.Repeat("é", 5<<20/2) },
		"panicking":     func() string { panic("no text") },
		"empty":         func() string { return "" },
		"backslash":     func() string { return `it's ? $1 \x00 E'\'` },
		"line breaks":   func() string { return "one\r\ntwo" },
		"only controls": func() string { return "\x00\x01" },
	}
	for _, joined := range []bool{false, true} {
		for name, text := range texts {
			id := fmt.Sprintf("%s %v", name, joined)
			e.On(id, func(ctx context.Context, job Job) error {
				if err := e.Effect(ctx, job.ID); err != nil {
					return err
				}
				if joined {
					return errors.Join(errBoom, hostileText(text))
				}
				return hostileText(text)
			})
			e.Accept(t, id)
		}
	}
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{Backoff: later, BatchSize: 100}))
	for _, joined := range []bool{false, true} {
		for name := range texts {
			id := fmt.Sprintf("%s %v", name, joined)
			row := e.Expect(t, id, Pending, 1)
			if row.LastError == "" || len(row.LastError) > 4<<10 || !utf8.ValidString(row.LastError) || bytes.ContainsAny([]byte(row.LastError), "\x00\x01\r\n") {
				t.Errorf("%s: kept %d bytes: %.80q", id, len(row.LastError), row.LastError)
			}
		}
	}
	if row := e.Row(t, "backslash false"); row.LastError != `it's ? $1 \x00 E'\'` {
		t.Errorf("a harmless text was changed: %q", row.LastError)
	}
	if row := e.Row(t, "5 MB false"); !strings.HasPrefix(row.LastError, "ééé") {
		t.Errorf("a long text lost its beginning: %.20q", row.LastError)
	}
}

func swallowedSQLError(t *testing.T, e *Env) {
	e.Exec(t, `CREATE TABLE taken (k TEXT PRIMARY KEY)`)
	e.Exec(t, `INSERT INTO taken VALUES ('x')`)
	swallow := func(before bool) func(context.Context, Job) error {
		return func(ctx context.Context, job Job) error {
			if before {
				if err := e.Effect(ctx, job.ID); err != nil {
					return err
				}
			}
			if err := e.sql(ctx, `INSERT INTO taken VALUES ('x')`); err == nil {
				return errors.New("a duplicate key was taken")
			}
			if !before {
				_ = e.Effect(ctx, job.ID)
			}
			return nil
		}
	}
	if !e.Postgres() {
		// SQLite undoes the statement, and the transaction goes on.
		e.On("a", swallow(true))
		e.Accept(t, "a")
		e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
		e.Expect(t, "a", Processed, 0)
		return
	}
	e.DB.SetMaxOpenConns(1)
	const text = "returned nil although a statement had failed"
	before := e.Count(t, `SELECT pg_backend_pid()`)
	e.among(t, inbox.ProcessorConfig{},
		faulty{id: "before", do: swallow(true), text: text},
		faulty{id: "after", do: swallow(false), text: text})
	if after := e.Count(t, `SELECT pg_backend_pid()`); after != before {
		t.Error("the connection was thrown away")
	}
}

func errorBehindRows(t *testing.T, e *Env) {
	if !e.Postgres() {
		t.Skip("SQLite: a failing query leaves the transaction as it was")
	}
	do := func(ctx context.Context, job Job) error {
		if err := e.Effect(ctx, job.ID); err != nil {
			return err
		}
		rows, err := inbox.DB(ctx, e.DB).QueryContext(ctx, `SELECT 1 / (5000 - n) FROM generate_series(1, 10000) n`)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() { //nolint:revive // the error behind the rows is ignored on purpose
		}
		return nil
	}
	e.among(t, inbox.ProcessorConfig{}, faulty{id: "guilty", do: do, text: "although a statement had failed"})
}

func rollbackByDatabase(t *testing.T, e *Env) {
	if e.Postgres() {
		t.Skip("PostgreSQL: a failed statement never ends a transaction, it only aborts it")
	}
	e.Exec(t, `CREATE TABLE taken (k TEXT PRIMARY KEY)`)
	e.Exec(t, `INSERT INTO taken VALUES ('x')`)
	rollback := `INSERT OR ROLLBACK INTO taken VALUES ('x')`
	for _, swallowed := range []bool{false, true} {
		t.Run(fmt.Sprintf("swallowed: %v", swallowed), func(t *testing.T) {
			id := fmt.Sprintf("guilty, swallowed: %v", swallowed)
			e.among(t, inbox.ProcessorConfig{}, faulty{id: id, do: func(ctx context.Context, job Job) error {
				if err := e.Effect(ctx, job.ID); err != nil {
					return err
				}
				err := e.sql(ctx, rollback)
				if err == nil {
					return errors.New("a duplicate key was taken")
				}
				if later := e.Effect(ctx, job.ID); !errors.Is(later, inbox.ErrTransactionLost) {
					return fmt.Errorf("the next statement was sent: %w", later)
				}
				if swallowed {
					return nil
				}
				return err
			}, text: "constraint"})
			e.Exec(t, `DELETE FROM inbox_queue`)
			e.Exec(t, `DELETE FROM inbox_messages`)
			e.Exec(t, `DELETE FROM effects`)
		})
	}
}

func deferredConstraint(t *testing.T, e *Env) {
	e.Exec(t, `CREATE TABLE parents (id INTEGER PRIMARY KEY)`)
	e.Exec(t, `CREATE TABLE children (parent INTEGER NOT NULL REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED)`)
	var ids []string
	for i := range 10 {
		ids = append(ids, fmt.Sprintf("job %d", i+1))
	}
	const guilty = "job 7"
	e.On(guilty, func(ctx context.Context, job Job) error {
		return errors.Join(e.Effect(ctx, job.ID), e.sql(ctx, `INSERT INTO children VALUES (42)`))
	})
	e.Accept(t, ids...)
	n, err := e.Processor(t, inbox.ProcessorConfig{Backoff: later}).Drain(t.Context())
	if err != nil || n != 9 {
		t.Fatalf("%d processed: %v", n, err)
	}
	for _, id := range ids {
		if id != guilty {
			e.Expect(t, id, Processed, 0)
			continue
		}
		row := e.Expect(t, id, Pending, 1)
		if !strings.Contains(strings.ToLower(row.LastError), "foreign key") || !strings.Contains(row.LastError, "commit") {
			t.Errorf("the error says %q", row.LastError)
		}
	}
	effects := e.Effects(t)
	if len(effects) != 9 || effects[guilty] != 0 {
		t.Errorf("effects: %v", effects)
	}
	if n := e.Count(t, `SELECT count(*) FROM children`); n != 0 {
		t.Errorf("%d orphans", n)
	}
}

// series is a query of n numbers.
func (e *Env) series(n int) string {
	return fmt.Sprintf(`WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < %d) SELECT n FROM c`, n)
}

func rowsLeftOpen(t *testing.T, e *Env) {
	e.On("rows", func(ctx context.Context, job Job) error {
		if err := e.Effect(ctx, job.ID); err != nil {
			return err
		}
		rows, err := inbox.DB(ctx, e.DB).QueryContext(ctx, e.series(100_000))
		if err != nil {
			return err
		}
		rows.Next()
		return nil
	})
	e.On("row", func(ctx context.Context, job Job) error {
		inbox.DB(ctx, e.DB).QueryRowContext(ctx, e.series(100_000))
		return e.Effect(ctx, job.ID)
	})
	e.Accept(t, "first", "rows", "second", "last")
	if e.Postgres() {
		// There a connection cannot do anything else before its row is read.
		e.On("row", func(ctx context.Context, job Job) error {
			if err := e.Effect(ctx, job.ID); err != nil {
				return err
			}
			inbox.DB(ctx, e.DB).QueryRowContext(ctx, e.series(100_000))
			return nil
		})
	}
	e.Accept(t, "row", "very last")
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{Backoff: later}))
	for _, id := range []string{"first", "rows", "second", "last", "row", "very last"} {
		e.Expect(t, id, Processed, 0)
	}
}

func statementStillRunning(t *testing.T, e *Env) {
	started := make(chan struct{}, 10)
	ended := make(chan error, 10)
	e.among(t, inbox.ProcessorConfig{HandlerGrace: 20 * time.Second}, faulty{
		id: "guilty",
		do: func(ctx context.Context, job Job) error {
			if err := e.Effect(ctx, job.ID); err != nil {
				return err
			}
			go func() {
				started <- struct{}{}
				ended <- e.sql(context.WithoutCancel(ctx), e.slow())
			}()
			<-started
			time.Sleep(50 * time.Millisecond) // so that the statement is at the database
			return nil
		},
		text: "still running",
	})
	select {
	case err := <-ended:
		if err == nil {
			t.Error("the stray statement came to its end")
		}
	case <-time.After(20 * time.Second):
		t.Error("the stray statement still runs")
	}
}

// slow is a statement that takes far longer than any test.
func (e *Env) slow() string {
	if e.Postgres() {
		return `SELECT pg_sleep(60)`
	}
	return `SELECT count(*) FROM (` + e.series(1_000_000_000) + `)`
}
