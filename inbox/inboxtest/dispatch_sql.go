package inboxtest

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/letterbox-go/letterbox/inbox"
)

var sqlCases = []Case{
	{
		Name: "a handler may write with database/sql",
		Rule: "Statements, queries and prepared statements on SQL, with bound arguments, are part of the inbox's transaction; from outside it is the fallback.",
		Body: onSQL,
	},
	{
		Name: "what fails on SQL is undone",
		Rule: "An error of a handler undoes what it wrote on SQL, and nothing of its neighbours.",
		Body: undoneOnSQL,
	},
	{
		Name: "SQL cannot end the transaction",
		Rule: "SQL refuses what DB refuses, on whatever way, and fails the attempt even if that is swallowed.",
		Body: refusedOnSQL,
	},
	{
		Name: "SQL dies with its handler",
		Rule: "A goroutine that is left behind gets an error from SQL and from its prepared statements, and writes nothing.",
		Body: sqlDies,
	},
}

// insertBound is an INSERT with one placeholder of the driver.
func (e *Env) insertBound() string {
	if e.Postgres() {
		return `INSERT INTO effects (job) VALUES ($1)`
	}
	return `INSERT INTO effects (job) VALUES (?)`
}

// sqlWays are how a handler can send a statement with arguments through SQL.
var sqlWays = map[string]func(ctx context.Context, db inbox.SQLConn, query string, args ...any) error{
	"Exec": func(ctx context.Context, db inbox.SQLConn, query string, args ...any) error {
		_, err := db.ExecContext(ctx, query, args...)
		return err
	},
	"Query": func(ctx context.Context, db inbox.SQLConn, query string, args ...any) error {
		rows, err := db.QueryContext(ctx, query, args...)
		if err != nil {
			return err
		}
		return errors.Join(rows.Close(), rows.Err())
	},
	"QueryRow": func(ctx context.Context, db inbox.SQLConn, query string, args ...any) error {
		err := db.QueryRowContext(ctx, query, args...).Scan(new(any))
		if errors.Is(err, sql.ErrNoRows) { // as an INSERT answers
			return nil
		}
		return err
	},
	"Prepare and Exec": func(ctx context.Context, db inbox.SQLConn, query string, args ...any) error {
		statement, err := db.PrepareContext(ctx, query)
		if err != nil {
			return err
		}
		_, err = statement.ExecContext(ctx, args...)
		return errors.Join(err, statement.Close())
	},
	"Prepare and Query": func(ctx context.Context, db inbox.SQLConn, query string, args ...any) error {
		statement, err := db.PrepareContext(ctx, query)
		if err != nil {
			return err
		}
		rows, err := statement.QueryContext(ctx, args...)
		if err != nil {
			return errors.Join(err, statement.Close())
		}
		return errors.Join(rows.Close(), rows.Err(), statement.Close())
	},
}

func onSQL(t *testing.T, e *Env) {
	if inbox.SQL(t.Context(), e.DB.DB) != inbox.SQLConn(e.DB.DB) {
		t.Error("outside the inbox, SQL gives something else than the fallback")
	}
	other := sql.OpenDB(nowhere{})
	defer other.Close()
	var want []string
	for name, way := range sqlWays {
		want = append(want, name)
		e.On(name, func(ctx context.Context, job Job) error {
			if inbox.SQL(ctx, other) != inbox.SQLConn(other) {
				t.Error("another pool gets the transaction")
			}
			db := inbox.SQL(ctx, e.DB.DB)
			if err := way(ctx, db, e.insertBound(), job.ID); err != nil {
				return err
			}
			var n int
			query := strings.Replace(e.insertBound(), "INSERT INTO effects (job) VALUES (", "SELECT count(*) FROM effects WHERE job = (", 1)
			if err := db.QueryRowContext(ctx, query, job.ID).Scan(&n); err != nil || n != 1 {
				t.Errorf("%s: its own row is seen %d times, %v", name, n, err)
			}
			// The row of the handle next to it, in the same transaction.
			if err := insert(ctx, inbox.DB(ctx, e.DB), job.ID+" through bun"); err != nil {
				return err
			}
			return db.QueryRowContext(ctx, query, job.ID+" through bun").Scan(&n)
		})
	}
	slices.Sort(want)
	e.Accept(t, want...)
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{Backoff: later}))
	var effects []string
	for _, name := range want {
		e.Expect(t, name, Processed, 0)
		effects = append(effects, name, name+" through bun")
	}
	e.expectEffects(t, effects...)

	if err := sqlWays["Exec"](t.Context(), inbox.SQL(t.Context(), e.DB.DB), e.insertBound(), "direct"); err != nil {
		t.Errorf("called directly: %v", err)
	}
	e.expectEffects(t, append(effects, "direct")...)
}

func undoneOnSQL(t *testing.T, e *Env) {
	for name, way := range sqlWays {
		e.On(name, func(ctx context.Context, job Job) error {
			return errors.Join(way(ctx, inbox.SQL(ctx, e.DB.DB), e.insertBound(), job.ID), errBoom)
		})
		e.Accept(t, name, name+", not it")
	}
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{Backoff: later}))
	var want []string
	for name := range sqlWays {
		e.Expect(t, name, Pending, 1)
		e.Expect(t, name+", not it", Processed, 0)
		want = append(want, name+", not it")
	}
	e.expectEffects(t, want...)
}

func refusedOnSQL(t *testing.T, e *Env) {
	for name, way := range sqlWays {
		e.On(name, func(ctx context.Context, job Job) error {
			db := inbox.SQL(ctx, e.DB.DB)
			if err := way(ctx, db, e.insertBound(), job.ID); err != nil {
				return err
			}
			for _, text := range e.enders() {
				if err := way(ctx, db, text); err == nil || !strings.Contains(err.Error(), "is refused") {
					t.Errorf("%s: %q is not refused: %v", name, text, err)
				}
			}
			return nil
		})
		e.Accept(t, name)
	}
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{Backoff: later}))
	for name := range sqlWays {
		e.Expect(t, name, Pending, 1)
	}
	e.expectEffects(t)
}

func sqlDies(t *testing.T, e *Env) {
	var db inbox.SQLConn
	var statement *sql.Stmt
	e.On("a", func(ctx context.Context, job Job) (err error) {
		db = inbox.SQL(ctx, e.DB.DB)
		if statement, err = db.PrepareContext(context.WithoutCancel(ctx), e.insertBound()); err != nil {
			return err
		}
		_, err = statement.ExecContext(ctx, job.ID)
		return err
	})
	late := func(when string) {
		for name, way := range sqlWays {
			if err := way(context.Background(), db, e.insertBound(), "late"); err == nil {
				t.Errorf("%s: %s works", when, name)
			}
		}
		if _, err := statement.ExecContext(context.Background(), "late"); err == nil {
			t.Errorf("%s: the prepared statement works", when)
		}
	}
	e.On("b", func(ctx context.Context, job Job) error {
		late("while the next message is processed")
		return e.Effect(ctx, job.ID)
	})
	e.Accept(t, "a", "b")
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{Backoff: later}))
	e.Expect(t, "a", Processed, 0)
	e.Expect(t, "b", Processed, 0)
	late("after the handler")
	e.expectEffects(t, "a", "b")
}
