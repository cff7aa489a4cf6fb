package inbox_test

import (
	"context"
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/mediator"
)

// healthOf asks the database at every check, and has the patience of a test.
func healthOf(t *testing.T, repo *inbox.Repository, p *inbox.Processor, config inbox.HealthConfig) *inbox.Health {
	t.Helper()
	config.Fresh = -1
	if config.Timeout == 0 {
		config.Timeout = 10 * time.Second
	}
	h, err := inbox.NewHealth(repo, p, config)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// running starts Run; it is stopped at the end of the test.
func running(t *testing.T, p *inbox.Processor) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- p.Run(ctx)
		close(done)
	}()
	stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return stop
}

func TestHealthOfARunningProcessor(t *testing.T) {
	t.Parallel()
	targets(t, func(t *testing.T, target target) {
		n := openNode(t, target, false)
		p := n.mustProcessor(t, inbox.ProcessorConfig{PollInterval: 20 * time.Millisecond})
		h := healthOf(t, n.repo, p, inbox.HealthConfig{})
		r := h.Check(t.Context())
		if r.Ready || !r.Live || !r.Writable || !h.Live(t.Context()) || !slices.Equal(r.Problems, []string{"the processor is not running"}) {
			t.Errorf("before Run: %+v", r)
		}
		stop := running(t, p)
		eventually(t, "ready, after a poll", 30*time.Second, func() bool {
			r := h.Check(t.Context())
			return r.Ready && r.Live && r.Running && time.Since(r.LastPoll) < time.Minute
		})
		stop()
		if r := h.Check(t.Context()); r.Ready || !r.Live || !h.Live(t.Context()) {
			t.Errorf("after Run: %+v", r)
		}
	})
}

func TestHealthOfAProcessThatOnlyAccepts(t *testing.T) {
	t.Parallel()
	targets(t, func(t *testing.T, target target) {
		n := openNode(t, target, false)
		h := healthOf(t, n.repo, nil, inbox.HealthConfig{MaxAge: time.Hour})
		n.accept(t, "a")
		if r := h.Check(t.Context()); !r.Ready || !r.Live || r.OldestDue <= 0 || r.OldestDue > time.Minute {
			t.Errorf("%+v", r)
		}
		h = healthOf(t, n.repo, nil, inbox.HealthConfig{MaxAge: time.Nanosecond})
		if r := h.Check(t.Context()); r.Ready || !r.Live || len(r.Problems) != 1 {
			t.Errorf("an old message: %+v", r)
		}
	})
}

func TestHealthOfAReadOnlyDatabase(t *testing.T) {
	t.Parallel()
	targets(t, func(t *testing.T, target target) {
		n := openNode(t, target, false)
		var readOnly *bun.DB
		names := inbox.NewNameMap()
		inbox.Register[task](names, "task")
		if target.Driver == "sqlite" {
			pool, err := sql.Open("sqlite", "file:"+target.DSN+"?mode=ro")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = pool.Close() })
			readOnly = bun.NewDB(pool, sqlitedialect.New())
		} else {
			n.exec(t, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$`)
			db, err := target.open() // sessions that begin now
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			readOnly = db
		}
		repo, err := inbox.NewRepository(readOnly, names, inbox.Config{})
		if err != nil {
			t.Fatal(err)
		}
		r := healthOf(t, repo, nil, inbox.HealthConfig{}).Check(t.Context())
		if r.Ready || !r.Live || r.Writable || r.Err != nil || !slices.Equal(r.Problems, []string{"the database is read-only"}) {
			t.Errorf("%+v", r)
		}
	})
}

func TestHealthDoesNotWaitForTheWriterOfSQLite(t *testing.T) {
	t.Parallel()
	n := openNode(t, target{"sqlite", t.TempDir() + "/x.db"}, false)
	tx, err := n.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), `INSERT INTO effects (job) VALUES ('x')`); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	r := healthOf(t, n.repo, nil, inbox.HealthConfig{}).Check(t.Context())
	if !r.Ready || !r.Writable || r.Err != nil {
		t.Errorf("%+v", r)
	}
	if took := time.Since(began); took > 5*time.Second { // the busy timeout is ten
		t.Errorf("took %v", took)
	}
}

func TestAHandlerThatIsStuckCostsLiveness(t *testing.T) {
	t.Parallel()
	targets(t, func(t *testing.T, target target) {
		n := openNode(t, target, false)
		started, release := make(chan struct{}), make(chan struct{})
		n.before = func(context.Context, string) error {
			close(started)
			<-release
			return nil
		}
		p := n.mustProcessor(t, inbox.ProcessorConfig{Workers: 1, PollInterval: 20 * time.Millisecond})
		h := healthOf(t, n.repo, p, inbox.HealthConfig{MaxSilence: 300 * time.Millisecond})
		n.accept(t, "a")
		running(t, p)
		<-started
		eventually(t, "not live", 20*time.Second, func() bool { return !h.Live(t.Context()) })
		if r := h.Check(t.Context()); r.Live || r.Ready || !r.Writable {
			t.Errorf("%+v", r)
		}
		close(release)
		eventually(t, "live again", 20*time.Second, func() bool { return h.Live(t.Context()) && h.Check(t.Context()).Ready })
	})
}

func TestADatabaseThatIsAwayCostsReadinessOnly(t *testing.T) {
	t.Parallel()
	throughProxy(t, func(t *testing.T, p *proxied) {
		requests := mediator.NewRequestMap()
		mediator.BindCommand(requests, func(context.Context, remote) error { return nil })
		proc, err := inbox.NewProcessor(p.behind, inbox.ProcessorConfig{Requests: mediator.NewRequestMediator(requests), PollInterval: 20 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		h := healthOf(t, p.behind, proc, inbox.HealthConfig{MaxSilence: 2 * time.Second, Timeout: time.Second})
		running(t, proc)
		eventually(t, "ready", 30*time.Second, func() bool { return h.Check(t.Context()).Ready })
		p.proxy.Swallow(true)
		for until := time.Now().Add(5 * time.Second); time.Now().Before(until); {
			if !h.Live(t.Context()) {
				t.Fatal("not live while the database is away")
			}
			if r := h.Check(t.Context()); r.Ready || r.Err == nil {
				t.Fatalf("%+v", r)
			}
		}
		p.proxy.Swallow(false)
		eventually(t, "ready again", 60*time.Second, func() bool {
			if !h.Live(t.Context()) {
				t.Fatal("not live when the database comes back")
			}
			return h.Check(t.Context()).Ready
		})
	})
}

func TestNewHealthRefusesNonsense(t *testing.T) {
	t.Parallel()
	if _, err := inbox.NewHealth(nil, nil, inbox.HealthConfig{}); err == nil {
		t.Error("no repository is fine")
	}
	n := openNode(t, target{"sqlite", t.TempDir() + "/x.db"}, true)
	if _, err := inbox.NewHealth(n.repo, nil, inbox.HealthConfig{MaxAge: -1}); err == nil {
		t.Error("a negative age is fine")
	}
}
