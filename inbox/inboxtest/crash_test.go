package inboxtest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/inbox/inboxtest"
	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/mediator"
)

type transfer struct {
	ID string `json:"id"`
}

// bank is an application with one handler, which writes one row per transfer.
type bank struct {
	db       *bun.DB
	names    *inbox.NameMap
	requests *mediator.RequestMap
	repo     *inbox.Repository
	proc     *inbox.Processor
}

func newBank(db *bun.DB, config inbox.Config, middleware ...mediator.Middleware) (*bank, error) {
	b := &bank{db: db, names: inbox.NewNameMap(), requests: mediator.NewRequestMap()}
	inbox.Register[transfer](b.names, "transfer")
	mediator.BindCommand(b.requests, func(ctx context.Context, c transfer) error {
		_, err := inbox.DB(ctx, b.db).ExecContext(ctx, `INSERT INTO transfers (message_id) VALUES (?)`, c.ID)
		return err
	})
	var err error
	if b.repo, err = inbox.NewRepository(db, b.names, config); err != nil {
		return nil, err
	}
	b.proc, err = inbox.NewProcessor(b.repo, inbox.ProcessorConfig{
		Requests: mediator.NewRequestMediator(b.requests, middleware...),
		Workers:  1,
		Backoff:  inbox.Backoff{Base: time.Millisecond, Max: time.Millisecond},
	})
	return b, err
}

// openBank is a bank with its tables.
func openBank(t testing.TB, db *bun.DB, config inbox.Config) *bank {
	t.Helper()
	b, err := newBank(db, config)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.repo.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.exec(t, `CREATE TABLE transfers (message_id TEXT NOT NULL)`)
	return b
}

func (b *bank) exec(t testing.TB, query string) {
	t.Helper()
	if _, err := b.db.ExecContext(t.Context(), query); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func (b *bank) accept(ctx context.Context, ids ...string) error {
	entries := make([]inbox.Entry, len(ids))
	for i, id := range ids {
		entries[i] = inbox.Entry{MessageID: id, Message: transfer{id}}
	}
	_, err := b.repo.Accept(ctx, entries)
	return err
}

// work is accept and drain, until both went well.
func (b *bank) work(t *testing.T, ids ...string) {
	t.Helper()
	inboxtest.Eventually(t, "the messages are accepted", func() bool { return b.accept(t.Context(), ids...) == nil })
	inboxtest.Eventually(t, "all are processed", func() bool {
		_, err := b.proc.Drain(t.Context())
		stats, statsErr := b.repo.Stats(t.Context())
		return err == nil && statsErr == nil && stats.Processed == int64(len(ids))
	})
}

var transfers = inboxtest.Effects{Query: `SELECT message_id FROM transfers`}

// The environment of a child process: a driver, a database, a place to die.
const (
	childDriver = "INBOXTEST_CHILD_DRIVER"
	childDSN    = "INBOXTEST_CHILD_DSN"
	childPoint  = "INBOXTEST_CHILD_POINT"
	childEnd    = "INBOXTEST_CHILD_END"
)

var openers = map[string]func(string) (*bun.DB, error){
	"pgx": testdb.OpenPGX, "pgdriver": testdb.OpenPGDriver, "sqlite": testdb.OpenSQLite,
}

// TestCrashChild is the child process of TestCrash.
func TestCrashChild(t *testing.T) {
	driver, child := os.LookupEnv(childDriver)
	if !child {
		t.Skip("only as a child process of TestCrash")
	}
	db, err := openers[driver](os.Getenv(childDSN))
	if err != nil {
		t.Fatal(err)
	}
	end := map[string]func(){"kill": inboxtest.Kill, "exit": inboxtest.Exit}[os.Getenv(childEnd)]
	crash := inboxtest.NewCrash(inboxtest.CrashPoint(os.Getenv(childPoint)), 1, end)
	b, err := newBank(db.WithQueryHook(crash), inbox.Config{}, crash.Middleware)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.accept(t.Context(), "1", "2", "3"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.proc.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Fatal("it is still alive")
}

func runCrashChild(t *testing.T, driver, dsn string, point inboxtest.CrashPoint, end string) error {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCrashChild$")
	cmd.Env = append(os.Environ(), childDriver+"="+driver, childDSN+"="+dsn, childPoint+"="+string(point), childEnd+"="+end)
	output, err := cmd.CombinedOutput()
	if strings.Contains(string(output), "FAIL") {
		t.Fatalf("the child failed: %s", output)
	}
	return err
}

// reached is what is in the database after a crash: stored messages and effects.
var reached = map[inboxtest.CrashPoint][2]int{
	inboxtest.BeforeAccept:  {0, 0},
	inboxtest.AfterAccept:   {3, 0},
	inboxtest.BeforeHandler: {3, 0},
	inboxtest.AfterHandler:  {3, 0},
	inboxtest.BeforeSettle:  {3, 0},
	inboxtest.BeforeCommit:  {3, 0},
	inboxtest.AfterCommit:   {3, 3},
}

func TestCrash(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"pgx", "sqlite"} {
		for _, point := range inboxtest.CrashPoints() {
			t.Run(driver+": a process that is killed "+string(point)+" costs nothing", func(t *testing.T) {
				t.Parallel()
				dsn := ""
				if driver == "sqlite" {
					dsn = testdb.SQLiteFile(t)
				} else {
					dsn = testdb.Postgres(t)
				}
				db, err := openers[driver](dsn)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = db.Close() })
				b := openBank(t, db, inbox.Config{})
				err = runCrashChild(t, driver, dsn, point, "kill")
				var exit *exec.ExitError
				if !errors.As(err, &exit) || exit.Exited() {
					t.Fatalf("the child was to be killed: %v", err)
				}
				var got [2]int
				if err := db.NewRaw(`SELECT (SELECT count(*) FROM inbox_messages), (SELECT count(*) FROM transfers)`).Scan(t.Context(), &got[0], &got[1]); err != nil {
					t.Fatal(err)
				}
				if got != reached[point] {
					t.Errorf("%d messages and %d effects after the crash, want %v", got[0], got[1], reached[point])
				}
				b.work(t, "1", "2", "3")
				inboxtest.ExactlyOnce(t, db, transfers)
			})
		}
	}

	t.Run("Exit ends a process with the code 137", func(t *testing.T) {
		t.Parallel()
		dsn := testdb.SQLiteFile(t)
		db, err := testdb.OpenSQLite(dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		openBank(t, db, inbox.Config{})
		err = runCrashChild(t, "sqlite", dsn, inboxtest.AfterHandler, "exit")
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 137 {
			t.Errorf("the child ended with %v", err)
		}
	})

	for _, point := range inboxtest.CrashPoints() {
		t.Run("in the test's own process, connections cut "+string(point)+" cost nothing", func(t *testing.T) {
			t.Parallel()
			dsn := testdb.Postgres(t)
			direct, err := testdb.OpenPGX(dsn)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = direct.Close() })
			openBank(t, direct, inbox.Config{})
			proxy, through := inboxtest.NewProxy(t, dsn)
			db, err := testdb.OpenPGX(through)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			crash := inboxtest.NewCrash(point, 1, proxy.Cut)
			b, err := newBank(db.WithQueryHook(crash), inbox.Config{}, crash.Middleware)
			if err != nil {
				t.Fatal(err)
			}
			b.work(t, "1", "2", "3")
			if !crash.Met() {
				t.Error("the place was never reached")
			}
			inboxtest.ExactlyOnce(t, direct, transfers)
		})
	}

	t.Run("the n-th pass counts, and only that", func(t *testing.T) {
		t.Parallel()
		var at []string
		passed, crash := []string{}, (*inboxtest.Crash)(nil)
		crash = inboxtest.NewCrash(inboxtest.BeforeHandler, 2, func() { at = append(at, passed...) })
		for _, id := range []string{"1", "2", "3", "4"} {
			passed = append(passed, id)
			_, _ = crash.Middleware(t.Context(), id, func(context.Context, any) (any, error) { return nil, nil })
		}
		if len(at) != 2 {
			t.Errorf("it happened after %v", at)
		}
	})

	t.Run("a crash that could never happen is refused", func(t *testing.T) {
		t.Parallel()
		for name, make := range map[string]func(){
			"an unknown place": func() { inboxtest.NewCrash("somewhere", 1, inboxtest.Kill) },
			"the zeroth pass":  func() { inboxtest.NewCrash(inboxtest.AfterCommit, 0, inboxtest.Kill) },
			"no action":        func() { inboxtest.NewCrash(inboxtest.AfterCommit, 1, nil) },
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s: no panic", name)
					}
				}()
				make()
			}()
		}
	})
}
