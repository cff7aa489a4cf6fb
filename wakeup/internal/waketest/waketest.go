// Package waketest checks a waker against what processors expect of one, on a
// real PostgreSQL.
package waketest

import (
	"context"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/mediator"
	"github.com/letterbox-go/letterbox/wakeup/internal/relay"
)

// Waker is what both wakers are.
type Waker interface {
	inbox.Waker
	Close() error
}

// Open returns a waker for a postgres:// URL.
type Open func(t testing.TB, dsn string, config relay.Config) Waker

// deadline is how long things may take that take milliseconds.
const deadline = 10 * time.Second

// soon keeps pauses short, for tests that lose connections.
var soon = inbox.Backoff{Base: 2 * time.Millisecond, Max: 20 * time.Millisecond}

// suite is a waker under test.
type suite struct {
	open Open
}

// Run runs every rule as a subtest.
func Run(t *testing.T, open Open) {
	t.Helper()
	s := suite{open}
	// Alone, since it counts goroutines.
	t.Run("wake-ups return after each of a hundred terminated connections", s.terminated)
	for _, c := range []struct {
		name string
		body func(t *testing.T)
	}{
		{"a message of another process is processed at once", s.acrossProcesses},
		{"an accept sends no notification itself", s.acceptsAlone},
		{"many accepts share a notification", s.coalesced},
		{"two inboxes in one database do not wake each other", s.twoInboxes},
		{"what is committed during an outage is found after it", s.committedMeanwhile},
		{"wake-ups return after a restart of the server", s.restarted},
		{"a vanished server is noticed", s.vanished},
		{"a pooler that swallows notifications is warned about once", s.swallowed},
		{"an idle processor asks nothing", s.idle},
		{"a server that is away is not stormed, and is logged once", s.away},
		{"accepts do not wait for a connection that hangs", s.hangs},
		{"an unused connection is given up", s.unused},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.body(t)
		})
	}
}

// job is the message of these tests.
type job struct {
	ID string `json:"id"`
}

// process is what one process has: a pool, a waker and a repository.
type process struct {
	dsn   string
	db    *bun.DB
	waker Waker
	repo  *inbox.Repository
	seen  *queries

	mu   sync.Mutex
	done map[string]time.Time // when its handler ran
}

// process opens another one on the database. Its waker goes through wakeDSN.
func (s suite) process(t testing.TB, dsn, wakeDSN string, config inbox.Config, wake relay.Config) *process {
	t.Helper()
	p := &process{dsn: dsn, seen: &queries{}, done: map[string]time.Time{}}
	var err error
	if p.db, err = testdb.OpenPGX(dsn); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.db.Close() })
	p.db = p.db.WithQueryHook(p.seen)
	p.waker = s.waker(t, wakeDSN, wake)
	config.Waker = p.waker
	names := inbox.NewNameMap()
	inbox.Register[job](names, "job")
	if p.repo, err = inbox.NewRepository(p.db, names, config); err != nil {
		t.Fatal(err)
	}
	if err := p.repo.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

func (s suite) waker(t testing.TB, dsn string, config relay.Config) Waker {
	t.Helper()
	w := s.open(t, dsn, config)
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// run runs a processor until the test ends, or stop is called.
func (p *process) run(t testing.TB, poll time.Duration) (stop func()) {
	t.Helper()
	requests := mediator.NewRequestMap()
	mediator.BindCommand(requests, func(_ context.Context, j job) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.done[j.ID] = time.Now()
		return nil
	})
	proc, err := inbox.NewProcessor(p.repo, inbox.ProcessorConfig{Requests: mediator.NewRequestMediator(requests), PollInterval: poll})
	if err != nil {
		t.Fatal(err)
	}
	return background(t, proc.Run)
}

// background runs something that blocks until its context ends.
func background(t testing.TB, run func(ctx context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("run: %v", err)
			}
		case <-time.After(3 * deadline):
			t.Error("it did not stop")
		}
	})
	t.Cleanup(stop)
	return stop
}

func (p *process) accept(t testing.TB, id string) {
	t.Helper()
	if _, err := p.repo.Accept(t.Context(), []inbox.Entry{{MessageID: id, Message: job{ID: id}}}); err != nil {
		t.Fatal(err)
	}
}

// processed waits until the handler of this process has seen a message.
func (p *process) processed(t testing.TB, id string) {
	t.Helper()
	eventually(t, id+" is processed", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return !p.done[id].IsZero()
	})
}

// looks are the statements that have claimed, or tried to; those of heartbeats
// and the like do not count.
func (p *process) looks() []string { return p.seen.with("SKIP LOCKED") }

// fewLooks is what maintenance may add to looks.
const fewLooks = 3

// quiet waits until nobody has looked for a while: the processor has nothing
// planned before its next poll.
func (p *process) quiet(t testing.TB) {
	t.Helper()
	last, since := len(p.looks()), time.Now()
	eventually(t, "the processor is idle", func() bool {
		if now := len(p.looks()); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > 1500*time.Millisecond
	})
}

// queries collects the statements of a pool.
type queries struct {
	mu   sync.Mutex
	text []string
}

func (q *queries) BeforeQuery(ctx context.Context, event *bun.QueryEvent) context.Context {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.text = append(q.text, event.Query)
	return ctx
}

func (q *queries) AfterQuery(context.Context, *bun.QueryEvent) {}

func (q *queries) with(part string) (found []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, text := range q.text {
		if strings.Contains(strings.ToUpper(text), part) {
			found = append(found, text)
		}
	}
	return found
}

// connect opens a connection that the waker knows nothing of.
func connect(t testing.TB, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func query[T any](t testing.TB, conn *pgx.Conn, text string, args ...any) (value T) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), text, args...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return value
}

// named gives the connections of a URL a name to be found by.
func named(t testing.TB, dsn, name string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("application_name", name)
	u.RawQuery = q.Encode()
	return u.String()
}

// backends are the connections of that name.
func backends(t testing.TB, conn *pgx.Conn, name string) []int32 {
	t.Helper()
	return query[[]int32](t, conn, `SELECT coalesce(array_agg(pid), '{}') FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1`, name)
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(deadline); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", deadline, what)
		}
	}
}
