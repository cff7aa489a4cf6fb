package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
)

var nestedCases = []Case{
	{
		Name: "a nested transaction that fails is undone alone",
		Rule: "RunInTx in a handler is a savepoint, at any depth: an error or panic undoes what was written inside, and nothing else.",
		Body: nestedFailure,
	},
	{
		Name: "a nested transaction survives a failed statement",
		Rule: "After an error inside, even a swallowed one, the handler's transaction is as usable as before.",
		Body: nestedStatementFailure,
	},
	{
		Name: "a nested transaction under a cancelled context is undone",
		Rule: "What it wrote never commits, and what the handler writes afterwards is not undone with it.",
		Body: nestedCancelled,
	},
	{
		Name: "a nested transaction twice inside under a cancelled context does not commit",
		Rule: "bun sends no ROLLBACK TO there; the attempt fails.",
		Body: nestedTwiceCancelled,
	},
	{
		Name: "RunInTx keeps the caller's context",
		Rule: "Its callback gets the values and the deadline of the context that was handed in, and so the same transaction from DB.",
		Body: nestedContext,
	},
	{
		Name: "a nested transaction that is left open is a failed attempt",
		Rule: "A handler that returns without ending what BeginTx began has not finished.",
		Body: nestedLeftOpen,
	},
}

func insert(ctx context.Context, db bun.IDB, job string) error {
	_, err := db.ExecContext(ctx, `INSERT INTO effects (job) VALUES (?)`, job)
	return err
}

func (e *Env) expectEffects(t *testing.T, jobs ...string) {
	t.Helper()
	effects := e.Effects(t)
	for _, job := range jobs {
		if effects[job] != 1 {
			t.Errorf("%q has %d effects", job, effects[job])
		}
	}
	if len(effects) != len(jobs) {
		t.Errorf("effects: %v, want %q", effects, jobs)
	}
}

func nestedFailure(t *testing.T, e *Env) {
	e.On("a", func(ctx context.Context, _ Job) error {
		db := inbox.DB(ctx, e.DB)
		err := db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
			return errors.Join(insert(ctx, tx, "one"), tx.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
				return insert(ctx, tx, "two")
			}))
		})
		if err != nil {
			return err
		}
		err = db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
			return errors.Join(insert(ctx, tx, "undone"), insert(ctx, db, "undone, by the handle"), errBoom)
		})
		if !errors.Is(err, errBoom) {
			return fmt.Errorf("RunInTx lost the error: %w", err)
		}
		err = db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
			err := tx.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
				return errors.Join(insert(ctx, tx, "undone"), errBoom)
			})
			if !errors.Is(err, errBoom) {
				return fmt.Errorf("the inner RunInTx lost the error: %w", err)
			}
			return insert(ctx, tx, "three")
		})
		if err != nil {
			return err
		}
		func() {
			defer func() { _ = recover() }()
			_ = db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
				_ = insert(ctx, tx, "undone")
				panic("inside")
			})
		}()
		// In the handle of the callback's context, and in a transaction of its own.
		err = db.RunInTx(ctx, nil, func(ctx context.Context, _ bun.Tx) error {
			return inbox.DB(ctx, e.DB).RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
				return insert(ctx, tx, "four")
			})
		})
		return errors.Join(err, insert(ctx, db, "five"))
	})
	e.Accept(t, "a")
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{Backoff: later}))
	e.Expect(t, "a", Processed, 0)
	e.expectEffects(t, "one", "two", "three", "four", "five")
}

func nestedStatementFailure(t *testing.T, e *Env) {
	bad := `INSERT INTO effects (job) VALUES (NULL)`
	e.On("a", func(ctx context.Context, _ Job) error {
		db := inbox.DB(ctx, e.DB)
		for _, swallowed := range []bool{false, true} {
			err := db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
				if err := insert(ctx, tx, "undone"); err != nil {
					return err
				}
				_, err := tx.ExecContext(ctx, bad)
				if err == nil {
					return errors.New("NULL was taken")
				}
				if swallowed && e.Postgres() {
					return nil
				}
				return err
			})
			if err == nil {
				return errors.New("a nested transaction with a failed statement was committed")
			}
		}
		return insert(ctx, db, "a")
	})
	e.Accept(t, "a")
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{Backoff: later}))
	e.Expect(t, "a", Processed, 0)
	e.expectEffects(t, "a")
}

func nestedCancelled(t *testing.T, e *Env) {
	e.On("RunInTx", func(ctx context.Context, _ Job) error {
		db := inbox.DB(ctx, e.DB)
		for i := range 20 {
			short, cancel := context.WithCancel(ctx)
			err := db.RunInTx(short, nil, func(ctx context.Context, tx bun.Tx) error {
				if err := insert(ctx, tx, "undone"); err != nil {
					return err
				}
				cancel()
				if i%2 == 0 {
					return nil
				}
				return errBoom
			})
			if err == nil {
				return errors.New("a nested transaction was committed under a cancelled context")
			}
			if err := insert(ctx, db, fmt.Sprintf("RunInTx %d", i)); err != nil {
				return err
			}
		}
		return nil
	})
	e.On("BeginTx", func(ctx context.Context, _ Job) error {
		db := inbox.DB(ctx, e.DB)
		for i := range 20 {
			short, cancel := context.WithCancel(ctx)
			tx, err := db.BeginTx(short, nil)
			if err != nil {
				cancel()
				return err
			}
			err = insert(short, tx, "undone")
			cancel()
			_ = tx.Rollback()
			if i%2 == 1 { // the next one begins at once
				err = errors.Join(err, db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
					return insert(ctx, tx, fmt.Sprintf("BeginTx %d", i))
				}))
			} else {
				err = errors.Join(err, insert(ctx, db, fmt.Sprintf("BeginTx %d", i)))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	e.On("last", func(ctx context.Context, _ Job) error {
		short, cancel := context.WithCancel(ctx)
		err := insert(ctx, inbox.DB(ctx, e.DB), "last")
		_ = inbox.DB(ctx, e.DB).RunInTx(short, nil, func(ctx context.Context, tx bun.Tx) error {
			defer cancel()
			return insert(ctx, tx, "undone")
		})
		return err // while the rollback may be on its way
	})
	e.Accept(t, "RunInTx", "BeginTx", "last")
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{Backoff: later}))
	want := []string{"last"}
	for _, id := range []string{"RunInTx", "BeginTx"} {
		e.Expect(t, id, Processed, 0)
		for i := range 20 {
			want = append(want, fmt.Sprintf("%s %d", id, i))
		}
	}
	e.Expect(t, "last", Processed, 0)
	e.expectEffects(t, want...)
}

func nestedTwiceCancelled(t *testing.T, e *Env) {
	e.among(t, inbox.ProcessorConfig{}, faulty{
		id: "guilty",
		do: func(ctx context.Context, _ Job) error {
			return inbox.DB(ctx, e.DB).RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
				short, cancel := context.WithCancel(ctx)
				err := tx.RunInTx(short, nil, func(ctx context.Context, tx bun.Tx) error {
					if err := insert(ctx, tx, "guilty"); err != nil {
						return err
					}
					cancel()
					return errBoom
				})
				if err == nil {
					return errors.New("no error")
				}
				return nil
			})
		},
		text: "without ending a nested transaction",
	})
}

type contextKey struct{}

func nestedContext(t *testing.T, e *Env) {
	e.On("a", func(ctx context.Context, job Job) error {
		deadline := time.Now().Add(20 * time.Second)
		inner, cancel := context.WithDeadline(context.WithValue(ctx, contextKey{}, "kept"), deadline)
		defer cancel()
		check := func(ctx context.Context, depth int) {
			if got, ok := ctx.Deadline(); !ok || !got.Equal(deadline) {
				t.Errorf("depth %d: the deadline is %v", depth, got)
			}
			if ctx.Value(contextKey{}) != "kept" {
				t.Errorf("depth %d: the value is lost", depth)
			}
			if _, ok := inbox.FromContext(ctx); !ok {
				t.Errorf("depth %d: the message is lost", depth)
			}
			if inbox.DB(ctx, e.DB) != inbox.DB(inner, e.DB) {
				t.Errorf("depth %d: another transaction", depth)
			}
		}
		return inbox.DB(ctx, e.DB).RunInTx(inner, nil, func(ctx context.Context, tx bun.Tx) error {
			check(ctx, 1)
			return tx.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
				check(ctx, 2)
				return insert(ctx, tx, job.ID)
			})
		})
	})
	e.Accept(t, "a")
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{Backoff: later}))
	e.Expect(t, "a", Processed, 0)
	e.expectEffects(t, "a")
}

func nestedLeftOpen(t *testing.T, e *Env) {
	open := func(inner bool) func(ctx context.Context, job Job) error {
		return func(ctx context.Context, job Job) error {
			tx, err := inbox.DB(ctx, e.DB).BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			if inner {
				defer func() { _ = tx.Commit() }()
				if tx, err = tx.BeginTx(ctx, nil); err != nil {
					return err
				}
			}
			return insert(ctx, tx, job.ID)
		}
	}
	e.among(t, inbox.ProcessorConfig{},
		faulty{id: "open", do: open(false), text: "without ending a nested transaction"},
		faulty{id: "inner one open", do: open(true), text: "without ending a nested transaction"})
	for _, commit := range []bool{true, false} {
		id := fmt.Sprintf("ended, commit: %v", commit)
		e.On(id, func(ctx context.Context, job Job) error {
			tx, err := inbox.DB(ctx, e.DB).BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			if err := insert(ctx, tx, job.ID); err != nil {
				return err
			}
			if commit {
				return tx.Commit()
			}
			return tx.Rollback()
		})
		e.Accept(t, id)
	}
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
	e.Expect(t, "ended, commit: true", Processed, 0)
	e.Expect(t, "ended, commit: false", Processed, 0)
	if effects := e.Effects(t); effects["ended, commit: true"] != 1 || effects["ended, commit: false"] != 0 {
		t.Errorf("effects: %v", effects)
	}
}
