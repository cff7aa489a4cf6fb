package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/mediator"
)

// chore is the message of the tests of the handle.
type chore struct {
	ID string `json:"id"`
}

// chores returns an inbox on db whose handler is do.
func chores(t *testing.T, db *bun.DB, config inbox.ProcessorConfig, do func(ctx context.Context, c chore) error) (*inbox.Repository, *inbox.Processor) {
	t.Helper()
	names := inbox.NewNameMap()
	inbox.Register[chore](names, "chore")
	requests := mediator.NewRequestMap()
	mediator.BindCommand(requests, do)
	config.Requests = mediator.NewRequestMediator(requests)
	repo, err := inbox.NewRepository(db, names, inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := repo.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	proc, err := inbox.NewProcessor(repo, config)
	if err != nil {
		t.Fatal(err)
	}
	return repo, proc
}

func TestADatabaseInMemorySurvivesDeadlines(t *testing.T) {
	t.Parallel()
	pool, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	pool.SetMaxOpenConns(1)
	db := bun.NewDB(pool, sqlitedialect.New())
	const endless = `WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) FROM c`
	repo, proc := chores(t, db, inbox.ProcessorConfig{MaxAttempts: 1}, func(ctx context.Context, c chore) error {
		if c.ID != "slow" {
			return nil
		}
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		_, err := inbox.DB(ctx, db).ExecContext(short, endless)
		return err
	})
	for _, id := range []string{"a", "slow", "b"} {
		if _, err := repo.Accept(t.Context(), []inbox.Entry{{MessageID: id, Message: chore{ID: id}}}); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 { // some of them in the middle of the accept
		short, cancel := context.WithTimeout(t.Context(), 100*time.Microsecond)
		entries := make([]inbox.Entry, 500)
		for i := range entries {
			entries[i] = inbox.Entry{MessageID: fmt.Sprint("many ", i), Message: chore{}}
		}
		if _, err := repo.Accept(short, entries); err == nil {
			t.Log("an accept was in time")
		}
		cancel()
	}
	if _, err := proc.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	stats, err := repo.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if stats.Dead != 1 || stats.Processed < 2 || stats.Pending != 0 {
		t.Errorf("%+v", stats)
	}
}

func TestFailedAttemptsLeaveNoGoroutine(t *testing.T) {
	db := testdb.SQLite(t)
	var runs int
	repo, proc := chores(t, db, inbox.ProcessorConfig{MaxAttempts: 1}, func(ctx context.Context, c chore) error {
		runs++
		handle := inbox.DB(ctx, db)
		// All of it is left open, and under a context that does not end.
		if _, err := handle.BeginTx(context.WithoutCancel(ctx), nil); err != nil {
			return err
		}
		rows, err := handle.QueryContext(context.WithoutCancel(ctx), `SELECT 1 UNION SELECT 2`)
		if err != nil {
			return err
		}
		rows.Next()
		handle.QueryRowContext(context.WithoutCancel(ctx), `SELECT 1 UNION SELECT 2`)
		return errors.New("boom")
	})
	for i := range 50 {
		if _, err := repo.Accept(t.Context(), []inbox.Entry{{MessageID: fmt.Sprint(i), Message: chore{}}}); err != nil {
			t.Fatal(err)
		}
	}
	before := runtime.NumGoroutine()
	if _, err := proc.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if runs < 50 {
		t.Fatalf("%d runs", runs)
	}
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before+10; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines before, %d after", before, runtime.NumGoroutine())
		}
	}
	if n := db.Stats().InUse; n != 0 {
		t.Errorf("%d connections in use", n)
	}
}
