package inboxtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
)

var refusalCases = []Case{
	{
		Name: "a handler cannot end the transaction",
		Rule: "COMMIT, ROLLBACK and BEGIN are refused before they are sent, in whatever form and on whatever way, and fail the attempt even if that is swallowed.",
		Body: refusedText,
	},
	{
		Name: "the handle has no Commit",
		Rule: "What DB returns shows bun.IDB, and neither Commit nor Rollback.",
		Body: noCommit,
	},
	{
		Name: "ending a nested transaction does not end the inbox's",
		Rule: "Commit and Rollback of a nested transaction are those of a savepoint, also on the *sql.Tx inside.",
		Body: nestedCommit,
	},
	{
		Name: "a refusal is not outvoted by a verdict",
		Rule: "A handler that was refused and asks for a postponement is charged.",
		Body: refusedAndPostponed,
	},
	{
		Name: "a handler that ends a captured transaction is dead",
		Rule: "When a handler in one's own loop commits the transaction behind the inbox's back, the message is dead with a clear text, and nothing is doubled.",
		Body: capturedTransaction,
	},
}

// enders are texts that would end the transaction or touch our savepoints.
func (e *Env) enders() []string {
	texts := []string{
		"COMMIT", "commit", " \t\n Commit ;", "END", "rollback", "ROLLBACK TRANSACTION", "BEGIN", "begin immediate",
		"-- comment\ncommit", "/* a */ commit", "/**/commit/**/", ";;commit",
		"SELECT 1; COMMIT", "SELECT ';' ; rollback", "SELECT 1 -- '\n; commit", `SELECT "a;b" FROM (SELECT 1 AS "a;b"); end`,
		"ROLLBACK TO letterbox_message", `rollback to savepoint "letterbox_batch"`, "RELEASE letterbox_batch", "savepoint letterbox_message",
	}
	if e.Postgres() {
		texts = append(texts, "ABORT", "START TRANSACTION", "PREPARE TRANSACTION 'x'", "COMMIT AND CHAIN", "commit work",
			"/* a /* nested */ still */ commit", `SELECT E'\''; commit`, "SELECT $$;$$; commit", "SELECT $x$ $$ $x$; commit",
			"SELECT E'a'\n'b\\''; COMMIT --'")
	} else {
		texts = append(texts, "COMMIT TRANSACTION", "/*/*/ commit /* */", "SELECT 1 AS [it's]; commit; --'", "SELECT 1 --\r'\n; commit; --'", "SELECT 1 AS `;`; commit")
	}
	return texts
}

// ways are how a handler can send SQL.
var ways = map[string]func(ctx context.Context, db bun.IDB, query string) error{
	"Exec": func(ctx context.Context, db bun.IDB, query string) error {
		_, err := db.ExecContext(ctx, query)
		return err
	},
	"Query": func(ctx context.Context, db bun.IDB, query string) error {
		rows, err := db.QueryContext(ctx, query)
		if err != nil {
			return err
		}
		return errors.Join(rows.Close(), rows.Err())
	},
	"QueryRow": func(ctx context.Context, db bun.IDB, query string) error {
		return db.QueryRowContext(ctx, query).Scan(new(any))
	},
	"NewRaw": func(ctx context.Context, db bun.IDB, query string) error {
		_, err := db.NewRaw(query).Exec(ctx)
		return err
	},
	"NewRaw, scanned": func(ctx context.Context, db bun.IDB, query string) error {
		return db.NewRaw(query).Scan(ctx, new(string))
	},
	"an expression": func(ctx context.Context, db bun.IDB, query string) error {
		_, err := db.NewRaw("SELECT 1; ?", bun.Safe(query)).Exec(ctx)
		return err
	},
}

func nestedWay(send func(ctx context.Context, tx bun.Tx, query string) error) func(context.Context, bun.IDB, string) error {
	return func(ctx context.Context, db bun.IDB, query string) error {
		return db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error { return send(ctx, tx, query) })
	}
}

// allWays adds those through a nested transaction.
func allWays() map[string]func(ctx context.Context, db bun.IDB, query string) error {
	all := map[string]func(context.Context, bun.IDB, string) error{
		"Exec of the *sql.Tx": nestedWay(func(ctx context.Context, tx bun.Tx, query string) error {
			_, err := tx.Tx.ExecContext(ctx, query)
			return err
		}),
		"QueryRow of the *sql.Tx": nestedWay(func(ctx context.Context, tx bun.Tx, query string) error {
			return tx.Tx.QueryRowContext(ctx, query).Scan(new(any))
		}),
		"a prepared statement": nestedWay(func(ctx context.Context, tx bun.Tx, query string) error {
			stmt, err := tx.PrepareContext(ctx, query)
			if err != nil {
				return err
			}
			defer stmt.Close()
			_, err = stmt.ExecContext(ctx)
			return err
		}),
	}
	for name, way := range ways {
		all[name] = way
		all[name+", nested"] = nestedWay(func(ctx context.Context, tx bun.Tx, query string) error { return way(ctx, tx, query) })
		all[name+", nested twice"] = nestedWay(func(ctx context.Context, tx bun.Tx, query string) error {
			return tx.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error { return way(ctx, tx, query) })
		})
	}
	return all
}

func refusedText(t *testing.T, e *Env) {
	var jobs []faulty
	for name, way := range allWays() {
		for _, swallowed := range []bool{true, false} {
			jobs = append(jobs, faulty{
				id: fmt.Sprintf("%s, swallowed: %v", name, swallowed),
				do: func(ctx context.Context, job Job) error {
					if err := e.Effect(ctx, job.ID); err != nil {
						return err
					}
					var last error
					for _, text := range e.enders() {
						if last = way(ctx, inbox.DB(ctx, e.DB), text); last == nil || !strings.Contains(last.Error(), "refused") {
							t.Errorf("%s: %q: %v", name, text, last)
						}
					}
					if swallowed {
						return nil
					}
					return last
				},
				text: "is refused",
			})
		}
	}
	e.among(t, inbox.ProcessorConfig{BatchSize: 200}, jobs...)
}

func noCommit(t *testing.T, e *Env) {
	e.On("a", func(ctx context.Context, _ Job) error {
		db := inbox.DB(ctx, e.DB)
		if _, ok := db.(interface{ Commit() error }); ok {
			t.Error("the handle has Commit")
		}
		if _, ok := db.(interface{ Rollback() error }); ok {
			t.Error("the handle has Rollback")
		}
		if _, ok := db.(interface{ Close() error }); ok {
			t.Error("the handle has Close")
		}
		return nil
	})
	e.Accept(t, "a")
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
	e.Expect(t, "a", Processed, 0)
}

func nestedCommit(t *testing.T, e *Env) {
	end := map[string]func(tx bun.Tx) error{
		"Commit":                 func(tx bun.Tx) error { return tx.Commit() },
		"Rollback":               func(tx bun.Tx) error { return tx.Rollback() },
		"Commit of the *sql.Tx":  func(tx bun.Tx) error { return tx.Tx.Commit() },
		"Rollback of the sql.Tx": func(tx bun.Tx) error { return tx.Tx.Rollback() },
	}
	var ids []string
	for name, end := range end {
		for _, failing := range []bool{false, true} {
			id := fmt.Sprintf("%s, failing: %v", name, failing)
			ids = append(ids, id)
			e.On(id, func(ctx context.Context, job Job) error {
				if err := e.Effect(ctx, job.ID); err != nil {
					return err
				}
				_ = inbox.DB(ctx, e.DB).RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
					if err := end(tx); err != nil {
						t.Errorf("%s: %v", name, err)
					}
					if _, err := tx.ExecContext(ctx, `INSERT INTO effects (job) VALUES ('late')`); !errors.Is(err, sql.ErrTxDone) {
						t.Errorf("%s: a statement after it: %v", name, err)
					}
					return nil
				})
				if failing {
					return errBoom
				}
				return nil
			})
		}
	}
	e.Accept(t, ids...)
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{Backoff: later}))
	effects := e.Effects(t)
	for _, id := range ids {
		if strings.HasSuffix(id, "true") {
			e.Expect(t, id, Pending, 1)
		} else {
			e.Expect(t, id, Processed, 0)
		}
		if want := strings.Count(id, "false"); effects[id] != want {
			t.Errorf("%s: %d effects", id, effects[id])
		}
	}
}

func refusedAndPostponed(t *testing.T, e *Env) {
	e.among(t, inbox.ProcessorConfig{}, faulty{
		id: "guilty",
		do: func(ctx context.Context, _ Job) error {
			_ = e.sql(ctx, "COMMIT")
			return inbox.Postpone(0)
		},
		text: "refused",
	})
}

// ownLoop is what an application writes around GetMany and Process.
func (e *Env) ownLoop(t *testing.T, p *inbox.Processor, captured *bun.Tx) (errs []error) {
	t.Helper()
	for range 20 {
		tx, err := e.DB.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		*captured = tx
		claimed, err := e.Repo.GetMany(t.Context(), tx, 10)
		if err != nil {
			t.Fatal(err)
		}
		if len(claimed) == 0 {
			_ = tx.Rollback()
			return errs
		}
		for _, message := range claimed {
			if err = p.Process(t.Context(), tx, message); err != nil {
				errs = append(errs, err)
				break
			}
		}
		if err == nil {
			err = tx.Commit()
		}
		if err != nil {
			_ = tx.Rollback()
		}
	}
	t.Fatal("the loop does not end")
	return nil
}

func capturedTransaction(t *testing.T, e *Env) {
	var captured bun.Tx
	raw := func(query string) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			_, err := captured.Tx.ExecContext(ctx, query)
			return err
		}
	}
	ends := map[string]func(ctx context.Context) error{
		"Commit":          func(context.Context) error { return captured.Commit() },
		"raw COMMIT":      raw("COMMIT"),
		"COMMIT and more": raw("COMMIT; BEGIN"),
	}
	ids := []string{"healthy first"}
	for name, end := range ends {
		for _, failing := range []bool{false, true} {
			id := fmt.Sprintf("%s, failing: %v", name, failing)
			ids = append(ids, id, "healthy after "+id)
			e.On(id, func(ctx context.Context, job Job) error {
				if err := errors.Join(e.Effect(ctx, job.ID), end(ctx)); err != nil {
					return err
				}
				if failing {
					return errBoom
				}
				return nil
			})
		}
	}
	e.Accept(t, ids...)
	errs := e.ownLoop(t, e.Processor(t, inbox.ProcessorConfig{Backoff: later}), &captured)
	if len(errs) < 2*len(ends) {
		t.Errorf("Process reported %d of %d: %v", len(errs), 2*len(ends), errs)
	}
	effects := e.Effects(t)
	for _, id := range ids {
		if effects[id] != 1 {
			t.Errorf("%s has %d effects", id, effects[id])
		}
		if strings.HasPrefix(id, "healthy") {
			e.Expect(t, id, Processed, 0)
		} else if row := e.Expect(t, id, Dead, 1); !strings.Contains(row.LastError, "ended the transaction") {
			t.Errorf("%s: the error says %q", id, row.LastError)
		}
	}
}
