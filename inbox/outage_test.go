package inbox_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

// dialed opens a database and counts the connections that are attempted.
func dialed(t *testing.T, dsn string) (*bun.DB, *atomic.Int64) {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	attempts := &atomic.Int64{}
	dialer := net.Dialer{}
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		attempts.Add(1)
		return dialer.DialContext(ctx, network, address)
	}
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(10)
	return bun.NewDB(db, pgdialect.New()), attempts
}

// logged returns a config whose log is kept.
func logged() (inbox.Config, *syncBuffer) {
	log := &syncBuffer{}
	return inbox.Config{Logger: slog.New(slog.NewTextHandler(log, nil))}, log
}

// running runs a processor; stop ends it and fails the test unless that is clean.
func (n *node) running(t *testing.T, config inbox.ProcessorConfig) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := n.mustProcessor(t, config)
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	ended := false
	stop = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(30 * time.Second):
			t.Error("Run did not stop within 30 s")
		}
	}
	t.Cleanup(stop)
	return stop
}

// The database is away for a while, at the start and later.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	const away = 8 * time.Second
	server := testdb.StartServer(t, testdb.Config{})
	db, dials := dialed(t, server.DSN())
	config, log := logged()
	n, err := newNodeOn(db, config)
	if err != nil {
		t.Fatal(err)
	}
	n.migrate(t)
	n.accept(t, taskIDs("before", 50)...)

	outage := func(during func()) {
		t.Helper()
		if err := server.Stop("fast"); err != nil {
			t.Fatal(err)
		}
		during()
		dialsBefore, linesBefore := dials.Load(), strings.Count(log.String(), "\n")
		time.Sleep(away) // it is what happens in a span of time that counts
		// Both back off from 0.1 s on; four workers alone could dial thousands of times.
		if got := dials.Load() - dialsBefore; got < 1 || got > 60 {
			t.Errorf("%d attempts to connect in %v, want a few", got, away)
		}
		if got := strings.Count(log.String(), "\n") - linesBefore; got > 5 {
			t.Errorf("%d log lines in %v, want a few:\n%s", got, away, log)
		}
		if _, err := n.repo.Accept(t.Context(), taskEntries("refused")); err == nil {
			t.Error("Accept returned nil without a database")
		}
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
	}
	outage(func() { n.running(t, inbox.ProcessorConfig{}) })
	// The pause has grown to seconds by now.
	eventually(t, "the messages are processed after the first outage", 30*time.Second, func() bool {
		return n.count(t, `SELECT count(*) FROM effects`) == 50
	})
	outage(func() {})
	eventually(t, "the database answers", 10*time.Second, func() bool {
		_, err := n.repo.Accept(t.Context(), taskEntries("after"))
		return err == nil
	})
	eventually(t, "the message is processed after the second outage", 30*time.Second, func() bool {
		return n.count(t, `SELECT count(*) FROM effects`) == 51
	})
	n.expectOnce(t, 51)
	if text := log.String(); !strings.Contains(text, "the database fails") || !strings.Contains(text, "answers again") {
		t.Errorf("the log does not tell of the outage and its end:\n%s", text)
	}
}

// The server restarts while handlers run: their runs are lost, not charged.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	for _, by := range []struct{ mode, driver string }{{"fast", "pgx"}, {"immediate", "pgdriver"}, {"kill", "pgx"}} {
		t.Run(by.mode, func(t *testing.T) {
			t.Parallel()
			const messages = 150
			server := testdb.StartServer(t, testdb.Config{})
			n := openNode(t, target{by.driver, server.DSN()}, false)
			n.accept(t, taskIDs("m", messages)...)
			var calls atomic.Int64
			pause := func(ctx context.Context, _ string) error {
				calls.Add(1)
				select {
				case <-time.After(5 * time.Millisecond):
				case <-ctx.Done():
				}
				return nil
			}
			n.before, n.after = pause, pause
			n.running(t, inbox.ProcessorConfig{Workers: 4, BatchSize: 8})
			for range 2 {
				began := calls.Load()
				eventually(t, "handlers run", 30*time.Second, func() bool { return calls.Load() > began+10 })
				if err := server.Restart(by.mode); err != nil {
					t.Fatal(err)
				}
			}
			eventually(t, "all messages are processed", 60*time.Second, func() bool {
				var left int
				err := n.db.NewRaw(`SELECT count(*) FROM inbox_queue`).Scan(t.Context(), &left)
				return err == nil && left == 0
			})
			n.expectOnce(t, messages)
		})
	}
}

// The server turns read-only under the pool (25006), as after a failover: the
// connections that know it so must leave the pool of whoever finds out.
func TestServerTurnsReadOnly(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"pgx", "pgdriver"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			n := openNode(t, target{driver, testdb.Postgres(t)}, false)
			n.accept(t, taskIDs("before", 20)...)
			var name string
			if err := n.db.NewRaw(`SELECT current_database()`).Scan(t.Context(), &name); err != nil {
				t.Fatal(err)
			}
			// A session keeps the setting it began with.
			n.exec(t, `ALTER DATABASE "`+name+`" SET default_transaction_read_only = on`)
			worker, acceptor := openNode(t, n.target, true), openNode(t, n.target, true)
			config, log := logged()
			repo, err := inbox.NewRepository(worker.db, worker.names, config)
			if err != nil {
				t.Fatal(err)
			}
			worker.repo = repo
			stop := worker.running(t, inbox.ProcessorConfig{})
			eventually(t, "the processor has met the read-only server", 10*time.Second, func() bool {
				return strings.Contains(log.String(), "the database fails")
			})
			for range 3 {
				if _, err := acceptor.repo.Accept(t.Context(), taskEntries("refused")); err == nil {
					t.Error("a read-only server accepted a message")
				}
			}
			n.exec(t, `ALTER DATABASE "`+name+`" RESET default_transaction_read_only`)
			eventually(t, "the messages are processed", 20*time.Second, func() bool {
				return n.count(t, `SELECT count(*) FROM effects`) == 20
			})
			stop()
			n.expectOnce(t, 20)
			if _, err := acceptor.repo.Accept(t.Context(), taskEntries("refused")); err != nil {
				t.Errorf("Accept on a server that is writable again: %v", err)
			}
		})
	}
}

// Connections are terminated (57P01) while handlers run on them, in batches and,
// since every tenth message fails its first attempt, one by one as well.
func TestBackendsTerminated(t *testing.T) {
	t.Parallel()
	const messages = 200
	n := openNode(t, target{"pgx", testdb.Postgres(t)}, false)
	n.accept(t, taskIDs("m", messages)...)
	worker := openNode(t, n.target, true)
	worker.after = func(ctx context.Context, id string) error {
		time.Sleep(2 * time.Millisecond)
		if info, _ := inbox.FromContext(ctx); info.Attempt == 1 && strings.HasSuffix(id, "7") {
			return errors.New("on purpose")
		}
		return nil
	}
	backoff := inbox.Backoff{Base: time.Millisecond, Max: time.Millisecond}
	worker.running(t, inbox.ProcessorConfig{Workers: 4, BatchSize: 8, Backoff: backoff})
	terminated := 0
	eventually(t, "all messages are processed although their connections are terminated", 60*time.Second, func() bool {
		// Those that hold messages, a few times a second.
		terminated += n.count(t, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND state = 'idle in transaction' AND random() < 0.3`)
		time.Sleep(20 * time.Millisecond)
		return n.count(t, `SELECT count(*) FROM inbox_queue`) == 0
	})
	if terminated == 0 {
		t.Error("no connection was terminated")
	}
	if got := n.count(t, `SELECT count(*) FROM effects`); got != messages {
		t.Errorf("%d effects of %d messages", got, messages)
	}
	if got := n.count(t, `SELECT count(*) FROM inbox_messages WHERE status = 1 AND attempts = CASE WHEN message_id LIKE '%7' THEN 1 ELSE 0 END`); got != messages {
		t.Errorf("%d of %d messages are processed and charged for what they did themselves", got, messages)
	}
}
