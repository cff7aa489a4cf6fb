package inboxtest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/mediator"
)

// Job is the message of the contract: a command whose handler does what the
// test scripted for its ID, and otherwise records one effect.
type Job struct {
	ID   string `json:"id"`
	Note string `json:"note,omitempty"`
}

// Env is what a rule works with: a migrated inbox, a table of effects, and a
// handler that can be scripted.
type Env struct {
	DB       *bun.DB
	Names    *inbox.NameMap
	Requests *mediator.RequestMap
	Events   *mediator.EventMap
	Repo     *inbox.Repository

	options Options

	mu     sync.Mutex
	script map[string]func(ctx context.Context, job Job) error
	calls  map[string]int
}

func newEnv(t *testing.T, db *bun.DB, options Options) *Env {
	t.Helper()
	e := &Env{
		DB:       db,
		options:  options,
		Names:    inbox.NewNameMap(),
		Requests: mediator.NewRequestMap(),
		Events:   mediator.NewEventMap(),
		script:   map[string]func(context.Context, Job) error{},
		calls:    map[string]int{},
	}
	inbox.Register[Job](e.Names, "job")
	mediator.BindCommand(e.Requests, e.handle)
	e.Repo = e.NewRepository(t, inbox.Config{})
	if err := e.Repo.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.Exec(t, `CREATE TABLE effects (n `+e.serial()+`, job TEXT NOT NULL)`)
	return e
}

// NewRepository returns a repository on the same database and names.
func (e *Env) NewRepository(t *testing.T, config inbox.Config) *inbox.Repository {
	t.Helper()
	config.DriverArgs = e.options.DriverArgs
	repo, err := inbox.NewRepository(e.DB, e.Names, config)
	if err != nil {
		t.Fatal(err)
	}
	return repo
}

// Processor returns a processor over Env's handlers. Backoff is short unless
// the config says otherwise.
func (e *Env) Processor(t *testing.T, config inbox.ProcessorConfig) *inbox.Processor {
	t.Helper()
	if config.Requests == nil {
		config.Requests = mediator.NewRequestMediator(e.Requests)
	}
	if config.Events == nil {
		config.Events = mediator.NewEventMediator(e.Events)
	}
	if config.Backoff == (inbox.Backoff{}) {
		config.Backoff = inbox.Backoff{Base: time.Millisecond, Max: time.Millisecond}
	}
	p, err := inbox.NewProcessor(e.Repo, config)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// On scripts the handler for one job. Use Effect in it to write.
func (e *Env) On(id string, do func(ctx context.Context, job Job) error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.script[id] = do
}

// Calls is how often the handler of a job was called.
func (e *Env) Calls(id string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.calls[id]
}

func (e *Env) handle(ctx context.Context, job Job) error {
	e.mu.Lock()
	e.calls[job.ID]++
	do := e.script[job.ID]
	e.mu.Unlock()
	if do != nil {
		return do(ctx, job)
	}
	return e.Effect(ctx, job.ID)
}

// Effect writes one row in the transaction of the handler.
func (e *Env) Effect(ctx context.Context, job string) error {
	_, err := inbox.DB(ctx, e.DB).ExecContext(ctx, `INSERT INTO effects (job) VALUES (?)`, job)
	return err
}

// Entries makes one entry per id.
func (e *Env) Entries(ids ...string) []inbox.Entry {
	entries := make([]inbox.Entry, len(ids))
	for i, id := range ids {
		entries[i] = inbox.Entry{MessageID: id, Source: "test", Message: Job{ID: id}}
	}
	return entries
}

// Accept stores one job per id and fails the test unless all are new.
func (e *Env) Accept(t *testing.T, ids ...string) {
	t.Helper()
	outcomes, err := e.Repo.Accept(t.Context(), e.Entries(ids...))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range outcomes {
		if o.Kind != inbox.Stored {
			t.Fatalf("%s is %v", o.Identity.MessageID, o.Kind)
		}
	}
}

// Drain processes until nothing is due.
func (e *Env) Drain(t *testing.T, p *inbox.Processor) {
	t.Helper()
	if _, err := p.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Row is a stored message as the tables hold it.
type Row struct {
	ID        int64
	Source    string
	MessageID string
	Name      string
	Payload   []byte
	Metadata  string
	Status    int // 0 pending, 1 processed, 2 dead
	Attempts  int
	LastError string
	// Of the queue; -1 where the message has left it.
	State         int
	Interruptions int
}

// Row reads the message with this id, as the tables hold it.
func (e *Env) Row(t *testing.T, messageID string) Row {
	t.Helper()
	var row Row
	err := e.DB.NewRaw(`
		SELECT m.id, m.source, m.message_id, m.name, m.payload, m.metadata, m.status, m.attempts, m.last_error,
			COALESCE(q.state, -1) AS state, COALESCE(q.interruptions, 0) AS interruptions
		FROM inbox_messages m LEFT JOIN inbox_queue q ON q.id = m.id WHERE m.message_id = ?`, messageID).Scan(t.Context(), &row)
	if err != nil {
		t.Fatalf("message %q: %v", messageID, err)
	}
	return row
}

// Expect fails unless the message has this status and number of attempts.
func (e *Env) Expect(t *testing.T, messageID string, status, attempts int) Row {
	t.Helper()
	row := e.Row(t, messageID)
	if row.Status != status || row.Attempts != attempts {
		t.Errorf("message %q: status %d after %d attempts, want %d after %d (%s)", messageID, row.Status, row.Attempts, status, attempts, row.LastError)
	}
	return row
}

// The statuses of Row.
const (
	Pending   = 0
	Processed = 1
	Dead      = 2
)

// Effects returns how many effects each job has.
func (e *Env) Effects(t *testing.T) map[string]int {
	t.Helper()
	var rows []struct {
		Job string
		N   int
	}
	if err := e.DB.NewRaw(`SELECT job, count(*) AS n FROM effects GROUP BY job`).Scan(context.WithoutCancel(t.Context()), &rows); err != nil {
		t.Fatal(err)
	}
	effects := map[string]int{}
	for _, r := range rows {
		effects[r.Job] = r.N
	}
	return effects
}

// Count returns a number from a query.
func (e *Env) Count(t *testing.T, query string, args ...any) int {
	t.Helper()
	var n int
	if err := e.DB.NewRaw(query, args...).Scan(context.WithoutCancel(t.Context()), &n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// Exec runs a statement of the test itself.
func (e *Env) Exec(t *testing.T, query string, args ...any) {
	t.Helper()
	if _, err := e.DB.NewRaw(query, args...).Exec(context.WithoutCancel(t.Context())); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// Postgres reports that the rule runs on PostgreSQL.
func (e *Env) Postgres() bool { return e.DB.Dialect().Name() == dialect.PG }

// MakeDue brings every retry forward.
func (e *Env) MakeDue(t *testing.T) {
	t.Helper()
	if e.Postgres() {
		e.Exec(t, `UPDATE inbox_queue SET due = clock_timestamp() WHERE state = 0`)
	} else {
		e.Exec(t, `UPDATE inbox_queue SET due = '2000-01-01T00:00:00.000000Z' WHERE state = 0`)
	}
}

func (e *Env) serial() string {
	if e.Postgres() {
		return "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
	}
	return "INTEGER PRIMARY KEY AUTOINCREMENT"
}

// Eventually polls until ok is true.
func Eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// checkInvariants holds after every rule: each processed job has exactly one
// effect unless a script wrote something else, no row is unreachable, and no
// transaction is left open.
func (e *Env) checkInvariants(t *testing.T) {
	if t.Failed() {
		return
	}
	for job, n := range e.Effects(t) {
		if n != 1 {
			t.Errorf("job %q has %d effects", job, n)
		}
	}
	unreachable := e.Count(t, `
		SELECT count(*) FROM inbox_messages m LEFT JOIN inbox_queue q ON q.id = m.id
		WHERE (m.status = 1 OR m.discarded_at IS NOT NULL) <> (q.id IS NULL) OR m.status = 2 AND q.state <> 2 OR m.status = 0 AND q.state = 2
			OR q.attempts <> m.attempts OR q.name <> m.name`)
	if unreachable != 0 {
		t.Errorf("%d messages that no claim, retry or sweep can see", unreachable)
	}
	if orphans := e.Count(t, `SELECT count(*) FROM inbox_queue q WHERE NOT EXISTS (SELECT 1 FROM inbox_messages m WHERE m.id = q.id)`); orphans != 0 {
		t.Errorf("%d queue rows without a message", orphans)
	}
	stuck := e.Count(t, `
		SELECT count(*) FROM inbox_queue q WHERE q.state = 1 AND NOT EXISTS (
			SELECT 1 FROM inbox_queue e WHERE e.ordering_key = q.ordering_key AND e.id < q.id)`)
	if stuck != 0 {
		t.Errorf("%d parked messages that nobody will wake", stuck)
	}
	open := func() int {
		if n := e.DB.Stats().InUse; n != 0 || !e.Postgres() {
			return n
		}
		return e.Count(t, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND state LIKE 'idle in transaction%'`)
	}
	deadline := time.Now().Add(5 * time.Second)
	for open() != 0 {
		if time.Now().After(deadline) {
			t.Errorf("%d connections or transactions are still open", open())
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}
