package inbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/mediator"
)

// childEnv makes this test binary a child process: its value is an order as JSON.
const childEnv = "LETTERBOX_TEST_CHILD"

func TestMain(m *testing.M) {
	tortureChild()
	text, child := os.LookupEnv(childEnv)
	if !child {
		os.Exit(m.Run())
	}
	var o order
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = o.obey()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// order is what a child process is told to do.
type order struct {
	Role   string   `json:"role"` // "drain", "run", "accept", "once", "migrate"
	Target target   `json:"target"`
	Point  string   `json:"point,omitempty"` // where it kills itself
	IDs    []string `json:"ids,omitempty"`
	Batch  int      `json:"batch,omitempty"`
	Until  int      `json:"until,omitempty"` // "run": how many effects there are in the end

	Heartbeat time.Duration `json:"heartbeat,omitempty"` // "drain"
}

// child starts this binary again with an order. It is killed with the test.
func (o order) child(t *testing.T) (wait func() error) {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	var output syncBuffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() error {
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("child %s %s: %w\n%s", o.Role, o.Point, err, output.String())
		}
		return nil
	}
}

// killed reports that a child was killed, and did not end in any other way.
func killed(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	return !exit.Exited() || runtime.GOOS == "windows" && exit.ExitCode() == 1
}

// die is the end of a process that nothing can prepare for: SIGKILL.
func die() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill()
	}
	select {}
}

func (o order) obey() error {
	n, err := newNode(o.Target, inbox.Config{})
	if err != nil {
		return err
	}
	defer n.db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	switch o.Role {
	case "migrate":
		return n.repo.Migrate(ctx)
	case "accept":
		n.killAt(o.Point)
		for _, id := range o.IDs {
			if _, err := n.repo.Accept(ctx, taskEntries(id)); err != nil {
				return err
			}
		}
		return nil
	case "drain":
		n.killAt(o.Point)
		p, err := n.processor(inbox.ProcessorConfig{BatchSize: o.Batch, Heartbeat: o.Heartbeat})
		if err != nil {
			return err
		}
		_, err = p.Drain(ctx)
		return err
	case "once":
		for _, id := range o.IDs {
			if _, err := n.once(ctx, id); err != nil {
				return err
			}
		}
		return nil
	case "run":
		return n.runUntil(ctx, inbox.ProcessorConfig{BatchSize: o.Batch, PollInterval: 20 * time.Millisecond}, o.Until)
	}
	return fmt.Errorf("unknown role %q", o.Role)
}

// target is a database that several processes share.
type target struct {
	Driver string `json:"driver"` // "pgx", "pgdriver", "sqlite"
	DSN    string `json:"dsn"`
}

func (t target) open() (*bun.DB, error) {
	switch t.Driver {
	case "pgx":
		return testdb.OpenPGX(t.DSN)
	case "pgdriver":
		return testdb.OpenPGDriver(t.DSN)
	case "sqlite":
		return testdb.OpenSQLite(t.DSN)
	}
	return nil, fmt.Errorf("unknown driver %q", t.Driver)
}

// targets runs a test on an empty database of each kind.
func targets(t *testing.T, test func(t *testing.T, target target)) {
	t.Helper()
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		test(t, target{"pgx", testdb.Postgres(t)})
	})
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		test(t, target{"sqlite", testdb.SQLiteFile(t)})
	})
}

// task is the message of the tests that need processes or servers of their own.
type task struct {
	ID string `json:"id"`
}

func taskEntries(ids ...string) []inbox.Entry {
	entries := make([]inbox.Entry, len(ids))
	for i, id := range ids {
		entries[i] = inbox.Entry{MessageID: id, Message: task{ID: id}}
	}
	return entries
}

func taskIDs(prefix string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s%05d", prefix, i)
	}
	return ids
}

// node is what one process has: a pool, a repository, and a handler that writes
// one effect per task.
type node struct {
	target   target
	db       *bun.DB
	names    *inbox.NameMap
	requests *mediator.RequestMap
	repo     *inbox.Repository
	before   func(ctx context.Context, id string) error // runs before the effect
	after    func(ctx context.Context, id string) error // runs after it
	handled  atomic.Bool                                // a handler returned
}

func newNode(target target, config inbox.Config) (*node, error) {
	db, err := target.open()
	if err != nil {
		return nil, err
	}
	return newNodeOn(db, config)
}

func newNodeOn(db *bun.DB, config inbox.Config) (*node, error) {
	n := &node{db: db, names: inbox.NewNameMap(), requests: mediator.NewRequestMap()}
	inbox.Register[task](n.names, "task")
	mediator.BindCommand(n.requests, n.handle)
	var err error
	n.repo, err = inbox.NewRepository(n.db, n.names, config)
	return n, err
}

// openNode is newNode for the test's own process; migrated says that the tables
// are there.
func openNode(t testing.TB, target target, migrated bool) *node {
	t.Helper()
	db, err := target.open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	n, err := newNodeOn(db, inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	n.target = target
	if !migrated {
		n.migrate(t)
	}
	return n
}

func (n *node) migrate(t testing.TB) {
	t.Helper()
	if err := n.repo.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.exec(t, `CREATE TABLE effects (job TEXT NOT NULL)`)
}

func (n *node) handle(ctx context.Context, task task) error {
	if n.before != nil {
		if err := n.before(ctx, task.ID); err != nil {
			return err
		}
	}
	if _, err := inbox.DB(ctx, n.db).ExecContext(ctx, `INSERT INTO effects (job) VALUES (?)`, task.ID); err != nil {
		return err
	}
	n.handled.Store(true)
	if n.after != nil {
		return n.after(ctx, task.ID)
	}
	return nil
}

func (n *node) processor(config inbox.ProcessorConfig) (*inbox.Processor, error) {
	config.Requests = mediator.NewRequestMediator(n.requests)
	return inbox.NewProcessor(n.repo, config)
}

func (n *node) mustProcessor(t testing.TB, config inbox.ProcessorConfig) *inbox.Processor {
	t.Helper()
	p, err := n.processor(config)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// runUntil runs a processor until there are so many effects, whoever made them.
func (n *node) runUntil(ctx context.Context, config inbox.ProcessorConfig, effects int) error {
	p, err := n.processor(config)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- p.Run(running) }()
	for {
		select {
		case err := <-done:
			return fmt.Errorf("Run ended early: %w", errors.Join(err, ctx.Err()))
		case <-time.After(20 * time.Millisecond):
		}
		var have int
		if err := n.db.NewRaw(`SELECT count(*) FROM effects`).Scan(ctx, &have); err != nil {
			return err
		}
		if have >= effects {
			stop()
			return <-done
		}
	}
}

func (n *node) exec(t testing.TB, query string, args ...any) {
	t.Helper()
	if _, err := n.db.NewRaw(query, args...).Exec(t.Context()); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func (n *node) count(t testing.TB, query string, args ...any) int {
	t.Helper()
	var count int
	if err := n.db.NewRaw(query, args...).Scan(t.Context(), &count); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return count
}

func (n *node) accept(t testing.TB, ids ...string) {
	t.Helper()
	if _, err := n.repo.Accept(t.Context(), taskEntries(ids...)); err != nil {
		t.Fatal(err)
	}
}

func (n *node) drain(t testing.TB, p *inbox.Processor) int {
	t.Helper()
	processed, err := p.Drain(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return processed
}

// drainAll drains until nothing is pending: what a dying backend still holds is
// skipped at first.
func (n *node) drainAll(t testing.TB) {
	t.Helper()
	p := n.mustProcessor(t, inbox.ProcessorConfig{})
	deadline := time.Now().Add(20 * time.Second)
	for n.drain(t, p); n.count(t, `SELECT count(*) FROM inbox_queue`) > 0; n.drain(t, p) {
		if time.Now().After(deadline) {
			t.Fatal("messages are still pending after 20 s")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// expectOnce fails unless exactly want messages exist, each processed with one
// effect, and nobody was charged.
func (n *node) expectOnce(t testing.TB, want int) {
	t.Helper()
	for what, query := range map[string]string{
		"messages":           `SELECT count(*) FROM inbox_messages`,
		"processed messages": `SELECT count(*) FROM inbox_messages WHERE status = 1`,
		"effects":            `SELECT count(*) FROM effects`,
		"distinct effects":   `SELECT count(DISTINCT job) FROM effects`,
		"uncharged messages": `SELECT count(*) FROM inbox_messages WHERE attempts = 0 AND last_error = ''`,
	} {
		if got := n.count(t, query); got != want {
			t.Errorf("%d %s, want %d", got, what, want)
		}
	}
	if left := n.count(t, `SELECT count(*) FROM inbox_queue`); left != 0 {
		t.Errorf("%d rows are left in the queue", left)
	}
}

func (n *node) postgres() bool { return n.db.Dialect().Name() == dialect.PG }

// hook calls its functions around each query of bun.
type hook struct {
	before func(event *bun.QueryEvent)
	after  func(event *bun.QueryEvent)
}

func (h hook) BeforeQuery(ctx context.Context, event *bun.QueryEvent) context.Context {
	if h.before != nil {
		h.before(event)
	}
	return ctx
}

func (h hook) AfterQuery(_ context.Context, event *bun.QueryEvent) {
	if h.after != nil {
		h.after(event)
	}
}

// syncBuffer is a buffer for several writers.
type syncBuffer struct {
	mu   sync.Mutex
	text []byte
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text = append(b.text, p...)
	return len(p), nil
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.text)
}

// eventually polls until ok is true.
func eventually(t testing.TB, what string, within time.Duration, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(within)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", within, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
