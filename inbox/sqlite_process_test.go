package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

// soakEnv is how long the soak of one SQLite file takes; 60 s is what a release
// should have seen.
const soakEnv = "LETTERBOX_TEST_SOAK"

// Four acceptors and two processors, each with a pool of its own, work on one
// file for a while: nobody is told that the database is locked.
func TestSQLiteSoak(t *testing.T) {
	t.Parallel()
	length := 4 * time.Second
	if text := os.Getenv(soakEnv); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", soakEnv, err)
		}
	}
	for name, open := range map[string]func(t *testing.T, path string) *bun.DB{
		"as documented":                     openSQLite("_pragma=busy_timeout(30000)&_pragma=journal_mode(WAL)&_txlock=immediate"),
		"deferred transactions, no pragmas": openSQLite("_pragma=busy_timeout(30000)"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			soak(t, length, testdb.SQLiteFile(t), open)
		})
	}
}

// openSQLite opens a file with these parameters only.
func openSQLite(parameters string) func(t *testing.T, path string) *bun.DB {
	return func(t *testing.T, path string) *bun.DB {
		t.Helper()
		db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?"+parameters)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		db.SetMaxOpenConns(4)
		return bun.NewDB(db, sqlitedialect.New())
	}
}

func soak(t *testing.T, length time.Duration, path string, open func(*testing.T, string) *bun.DB) {
	config, log := logged()
	newMember := func() *node {
		n, err := newNodeOn(open(t, path), config)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	first := newMember()
	first.migrate(t)
	for range 2 {
		newMember().running(t, inbox.ProcessorConfig{PollInterval: 50 * time.Millisecond})
	}
	var accepted atomic.Int64
	var group sync.WaitGroup
	end := time.Now().Add(length)
	for a := range 4 {
		n := newMember()
		group.Go(func() {
			for i := 0; time.Now().Before(end); i++ {
				ids := taskIDs(fmt.Sprintf("%d-%d-", a, i), 1+i%3)
				if _, err := n.repo.Accept(t.Context(), taskEntries(ids...)); err != nil {
					t.Error(err)
					return
				}
				accepted.Add(int64(len(ids)))
			}
		})
	}
	group.Wait()
	want := int(accepted.Load())
	if want < 50 {
		t.Errorf("%d messages in %v: somebody starves", want, length)
	}
	eventually(t, "everything is processed", 60*time.Second, func() bool {
		return first.count(t, `SELECT count(*) FROM inbox_queue`) == 0
	})
	first.expectOnce(t, want)
	if text := log.String(); text != "" {
		t.Errorf("the log is to be empty:\n%s", text)
	}
}

// Migrate makes a file that was opened without any pragma fit.
func TestSQLiteWithoutPragmas(t *testing.T) {
	t.Parallel()
	db := openSQLite("")(t, testdb.SQLiteFile(t))
	n, err := newNodeOn(db, inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	n.migrate(t)
	var mode string
	if err := db.NewRaw(`SELECT journal_mode FROM pragma_journal_mode`).Scan(t.Context(), &mode); err != nil || mode != "wal" {
		t.Errorf("journal mode %q, %v, want wal", mode, err)
	}
	stop := n.running(t, inbox.ProcessorConfig{})
	var group sync.WaitGroup
	for a := range 4 {
		group.Go(func() {
			for _, id := range taskIDs(fmt.Sprint(a, "-"), 25) {
				if _, err := n.repo.Accept(t.Context(), taskEntries(id)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	stop()
	n.drainAll(t)
	n.expectOnce(t, 100)
}

func TestSQLiteInMemory(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T, dsn string, connections int) *node {
		t.Helper()
		pool, err := sql.Open("sqlite", dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { pool.Close() })
		pool.SetMaxOpenConns(connections)
		n, err := newNodeOn(bun.NewDB(pool, sqlitedialect.New()), inbox.Config{})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	t.Run("a pool of several connections is refused", func(t *testing.T) {
		t.Parallel()
		for _, dsn := range []string{":memory:", "file::memory:", "file:name?mode=memory", ""} {
			for _, connections := range []int{0, 2} {
				n := open(t, dsn, connections)
				if err := n.repo.Migrate(t.Context()); !errors.Is(err, inbox.ErrMemoryDatabase) {
					t.Errorf("%q with %d connections: %v, want ErrMemoryDatabase", dsn, connections, err)
				}
			}
		}
	})
	t.Run("with one connection everything works", func(t *testing.T) {
		t.Parallel()
		n := open(t, ":memory:", 1)
		n.migrate(t)
		n.before = func(_ context.Context, id string) error {
			if id == "fails" {
				return inbox.Permanent(errors.New("on purpose"))
			}
			return nil
		}
		stop := n.running(t, inbox.ProcessorConfig{})
		n.accept(t, append(taskIDs("m", 50), "fails")...)
		eventually(t, "everything is settled", 10*time.Second, func() bool {
			stats, err := n.repo.Stats(t.Context())
			return err == nil && stats.Processed == 50 && stats.Dead == 1
		})
		stop()
		if err := n.repo.Migrate(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("a handler that asks the pool for the only connection times out alone", func(t *testing.T) {
		t.Parallel()
		n := open(t, ":memory:", 1)
		n.migrate(t)
		n.before = func(ctx context.Context, id string) error {
			if id != "greedy" {
				return nil
			}
			_, err := n.db.ExecContext(ctx, `SELECT 1`)
			return err
		}
		n.accept(t, "before", "greedy", "after")
		p := n.mustProcessor(t, inbox.ProcessorConfig{Timeout: 100 * time.Millisecond, MaxAttempts: 1})
		if got := n.drain(t, p); got != 2 {
			t.Errorf("%d processed, want 2", got)
		}
		if got := n.count(t, `SELECT count(*) FROM inbox_messages WHERE status = 2 AND attempts = 1`); got != 1 {
			t.Errorf("%d dead after one attempt, want 1", got)
		}
	})
	t.Run("a deadline in the middle of a statement does not cost the database", func(t *testing.T) {
		t.Parallel()
		n := open(t, ":memory:", 1)
		n.migrate(t)
		n.accept(t, "before")
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		hooked := n.db.WithQueryHook(hook{before: func(event *bun.QueryEvent) {
			if strings.Contains(event.Query, "INSERT INTO") {
				cancel(context.DeadlineExceeded)
			}
		}})
		repo, err := inbox.NewRepository(hooked, n.names, inbox.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := repo.Accept(timedOut{ctx}, taskEntries("late")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Accept: %v, want the error of its context", err)
		}
		n.drainAll(t)
		n.expectOnce(t, 1)
	})
}

// timedOut is a context that says its deadline is over when it is cancelled.
type timedOut struct{ context.Context }

func (c timedOut) Err() error {
	if c.Context.Err() != nil {
		return context.DeadlineExceeded
	}
	return nil
}
