package inbox

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uptrace/bun"
)

// acceptTries is how often Accept begins again by itself.
const acceptTries = 5

// Repository stores messages and hands them out. It is safe for concurrent use.
type Repository struct {
	config Config
	names  *NameMap
	*database
	store   store
	group   group
	sweeper sweeper

	// accepting counts the calls of Accept that want the write lock of SQLite;
	// a processor in this process ends its batch early for them.
	accepting atomic.Int32
	alone     chan struct{} // held by the worker that runs a message alone

	mu    sync.Mutex
	wakes map[chan struct{}]bool // one per running processor
}

// NewRepository returns a Repository on db: PostgreSQL (bun's pgdialect over any
// driver) or SQLite (sqlitedialect over modernc.org/sqlite). It sends no SQL;
// call Migrate before first use. A config that cannot work is an error that
// names every problem.
func NewRepository(db *bun.DB, names *NameMap, config Config) (*Repository, error) {
	if db == nil || names == nil {
		return nil, errors.New("inbox: NewRepository needs a database and a name map")
	}
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	r := &Repository{config: config, names: names, wakes: map[chan struct{}]bool{}, alone: make(chan struct{}, 1)}
	r.group.repo = r
	var err error
	if r.database, err = newDatabase(db, &r.config); err != nil {
		return nil, err
	}
	switch r.dialect {
	case postgresDialect:
		r.store = &postgres{database: r.database}
	case sqliteDialect:
		r.store = &sqlite{r.database}
	}
	return r, nil
}

// Names returns the name map that the repository was made with.
func (r *Repository) Names() *NameMap { return r.names }

// Add stores entries in the caller's transaction, in one statement, and never
// commits. Only after the caller has committed may the sender be answered; then
// call Committed, so that a processor in this process wakes up.
//
// The outcomes are in the order of entries. An empty batch sends no SQL.
//
// Before any SQL: an *EntryError for the first bad entry, ErrBatchTooLarge,
// ErrNoTransaction. From the database: a *RetryableError when the transaction
// should be tried again as a whole. Nothing of the call is stored then; on
// PostgreSQL a database error has ended the transaction. In a REPEATABLE READ
// transaction a duplicate that is newer than its snapshot is such an error
// (40001).
//
// One Add per transaction never deadlocks with others; several in one
// transaction can.
func (r *Repository) Add(ctx context.Context, tx bun.IConn, entries []Entry) ([]Outcome, error) {
	q, err := asTransaction(tx)
	if err != nil {
		return nil, err
	}
	rows, err := r.prepare(entries)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	outcomes, err := r.add(ctx, q, rows, false)
	return outcomes, r.wrap("add", err)
}

// Accept is Add in a transaction of its own: when it returns without error, the
// entries are committed and the sender may be answered. It wakes the processors
// of this process and, where Config.Waker is set, of others. Calls that arrive while others commit share a statement and a
// commit; each returns when its own entries are durable. What the database wants retried, it retries a few times
// before it returns a *RetryableError.
func (r *Repository) Accept(ctx context.Context, entries []Entry) ([]Outcome, error) {
	rows, err := r.prepare(entries)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	outcomes, err := r.group.accept(ctx, rows)
	if errors.Is(err, errAlone) {
		outcomes, err = r.acceptAlone(ctx, rows)
	}
	if err != nil {
		return nil, err
	}
	r.Committed(ctx, outcomes)
	return outcomes, nil
}

// acceptAlone tries again what the database wants tried again.
func (r *Repository) acceptAlone(ctx context.Context, rows []row) ([]Outcome, error) {
	pause := Backoff{Base: 20 * time.Millisecond, Max: time.Second}
	for try := 1; ; try++ {
		outcomes, err := r.accept(ctx, rows, false)
		if err == nil {
			return outcomes, nil
		}
		err = r.wrap("accept", err)
		var again *RetryableError
		if !errors.As(err, &again) || try == acceptTries || sleep(ctx, pause.Delay(try)) != nil {
			return nil, err
		}
	}
}

// accept stores rows in a transaction of its own. bounded is for gathered calls:
// it waits only briefly for an open transaction that holds one of the ids.
func (r *Repository) accept(ctx context.Context, rows []row, bounded bool) (outcomes []Outcome, err error) {
	if r.dialect == postgresDialect && !renamed(rows) {
		// One statement is a transaction of its own; its last reply comes
		// after the commit.
		outcomes, err = r.add(ctx, r.db.DB, rows, bounded)
		if sqlState(err) != codeReadOnly {
			return outcomes, err
		}
		// What follows drops a connection from the days before a failover.
	}
	r.accepting.Add(1)
	defer r.accepting.Add(-1)
	err = r.inTransaction(ctx, txOptions{isolation: sql.LevelReadCommitted}, func(ctx context.Context, tx querier) error {
		outcomes, err = r.add(ctx, tx, rows, bounded)
		return err
	})
	return outcomes, err
}

// Committed tells observers and processors about messages whose transaction the
// caller has just committed. Accept does so by itself. Inside a handler it takes
// effect when the handler's transaction is committed.
func (r *Repository) Committed(ctx context.Context, outcomes []Outcome) {
	if guard := r.handling(ctx); guard != nil {
		guard.tell(outcomes)
		return
	}
	r.committed(ctx, outcomes)
}

// handling returns the guard of the handler that ctx belongs to, if its
// transaction is one of this database.
func (r *Repository) handling(ctx context.Context) *guard {
	if a, ok := ctx.Value(ambientKey).(*ambient); ok && a.handle != nil && a.handle.db.DB == r.db.DB {
		return a.handle.guard
	}
	return nil
}

func (r *Repository) committed(ctx context.Context, outcomes []Outcome) {
	stored := false
	for _, o := range outcomes {
		stored = stored || o.Kind == Stored
		if kind := o.Kind.observed(); kind != 0 {
			r.observe(ctx, r.config.Logger, Observation{Kind: kind, Message: Info{ID: o.ID, Identity: o.Identity}})
		}
	}
	if stored {
		r.wake()
	}
}

func (k OutcomeKind) observed() ObservationKind {
	switch k {
	case Stored:
		return SawStored
	case Duplicate:
		return SawDuplicate
	case Mismatch:
		return SawMismatch
	}
	return 0
}

// GetMany claims at most limit due messages of registered names in the caller's
// transaction, oldest due time first: they are locked until it ends. With names
// given, only those, their former names included. Hand each to
// Processor.Process, in the order given, then commit and say Committed.
//
// Of an ordering key it returns only what may start, and holds the key until the
// transaction ends. Messages that have to wait stay in the way of later calls:
// where keys have long backlogs, use Run or Drain.
//
// ErrNoTransaction when tx is not a transaction; ErrUnregistered for a name that
// the NameMap does not know.
func (r *Repository) GetMany(ctx context.Context, tx bun.IConn, limit int, names ...string) ([]*Claimed, error) {
	q, err := asTransaction(tx)
	if err != nil {
		return nil, err
	}
	if limit < 1 {
		return nil, fmt.Errorf("inbox: get many: limit %d", limit)
	}
	marks, err := r.marksOf(names)
	if err != nil || len(marks) == 0 {
		return nil, err
	}
	if r.dialect == sqliteDialect {
		if _, err := r.exec(ctx, q, r.text(sqliteLock)); err != nil {
			return nil, r.wrap("get many", err)
		}
	}
	// A claim of ours parks what is held up; here the transaction is not ours.
	var without []string
	for {
		claimed, err := r.store.claim(ctx, q, marks, without, limit)
		if err != nil {
			return nil, r.wrap("get many", err)
		}
		ready, held, err := r.inOrder(ctx, q, claimed)
		if err != nil || len(ready) > 0 || len(held) == 0 {
			return ready, r.wrap("get many", err)
		}
		if ready, err = r.firstOfKeys(ctx, q, marks, held, limit); err != nil || len(ready) > 0 {
			return ready, r.wrap("get many", err)
		}
		for _, c := range held {
			without = append(without, c.OrderingKey)
		}
	}
}

// marksOf starts at the beginning of the stored names that belong to names, or of
// all that are registered.
func (r *Repository) marksOf(names []string) (marks []mark, err error) {
	registrations := r.names.registrations()
	if len(names) > 0 {
		registrations = nil
		for _, name := range names {
			reg := r.names.forName(name)
			if reg == nil {
				return nil, fmt.Errorf("inbox: get many: name %q: %w", name, ErrUnregistered)
			}
			if !slices.Contains(registrations, reg) {
				registrations = append(registrations, reg)
			}
		}
	}
	for _, reg := range registrations {
		for _, name := range reg.names() {
			marks = append(marks, mark{name: name})
		}
	}
	return marks, nil
}

// renamed reports that a row may be stored under a former name already.
func renamed(rows []row) bool {
	for i := range rows {
		if len(rows[i].former) > 0 {
			return true
		}
	}
	return false
}

// add stores rows and reports each outcome, in order.
func (r *Repository) add(ctx context.Context, q querier, rows []row, bounded bool) ([]Outcome, error) {
	outcomes := make([]Outcome, len(rows))
	for i := range rows {
		outcomes[i].Identity = rows[i].Identity
	}
	fresh, err := r.settleFormer(ctx, q, rows, outcomes)
	if err != nil || len(fresh) == 0 {
		return outcomes, err
	}
	batch := rows
	if len(fresh) < len(rows) {
		batch = make([]row, len(fresh))
		for i, at := range fresh {
			batch[i] = rows[at]
		}
	}
	ids, err := r.store.add(ctx, q, batch, bounded)
	if err != nil {
		return nil, err
	}
	return outcomes, r.report(ctx, q, batch, fresh, ids, outcomes)
}

// report turns what the store did with batch, whose rows belong at the
// positions fresh, into outcomes.
func (r *Repository) report(ctx context.Context, q querier, batch []row, fresh []int, ids []int64, outcomes []Outcome) error {
	stored := map[Identity][]byte{} // by this call
	var unknown []int               // there already
	for i, id := range ids {
		if id == 0 {
			unknown = append(unknown, i)
			continue
		}
		outcome := &outcomes[fresh[i]]
		outcome.Kind, outcome.ID = Stored, id
		stored[batch[i].Identity] = batch[i].fingerprint
	}
	var missing []Identity
	for _, i := range unknown {
		if first, twin := stored[batch[i].Identity]; twin {
			outcomes[fresh[i]].Kind = compare(batch[i].fingerprint, first)
		} else {
			missing = append(missing, batch[i].Identity)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	found, err := r.store.existing(ctx, q, missing)
	if err != nil {
		return err
	}
	for _, i := range unknown {
		outcome := &outcomes[fresh[i]]
		if outcome.Kind != 0 {
			continue
		}
		fingerprint, ok := found[batch[i].Identity]
		if !ok {
			// It was there when we lost the race, and is gone: swept in between.
			return &RetryableError{Code: codeSerialization, Err: errors.New("a duplicate disappeared")}
		}
		outcome.Kind = compare(batch[i].fingerprint, fingerprint)
	}
	return nil
}

// settleFormer looks for rows stored under former names of their type and
// returns the positions of all others.
func (r *Repository) settleFormer(ctx context.Context, q querier, rows []row, outcomes []Outcome) (fresh []int, err error) {
	var identities []Identity
	for i := range rows {
		for _, former := range rows[i].former {
			identities = append(identities, Identity{rows[i].Source, rows[i].MessageID, former})
		}
	}
	var found map[Identity][]byte
	if len(identities) > 0 {
		if found, err = r.store.existing(ctx, q, identities); err != nil {
			return nil, err
		}
	}
	fresh = make([]int, 0, len(rows))
next:
	for i := range rows {
		for _, former := range rows[i].former {
			if fingerprint, ok := found[Identity{rows[i].Source, rows[i].MessageID, former}]; ok {
				outcomes[i].Kind = compare(rows[i].fingerprint, fingerprint)
				continue next
			}
		}
		fresh = append(fresh, i)
	}
	return fresh, nil
}

// compare tells a duplicate from a mismatch. No fingerprint on either side: a
// duplicate.
func compare(given, stored []byte) OutcomeKind {
	if len(given) == 0 || len(stored) == 0 || bytes.Equal(given, stored) {
		return Duplicate
	}
	return Mismatch
}

// subscribe returns a channel that receives after a commit; it never blocks a sender.
func (r *Repository) subscribe() (wake chan struct{}, unsubscribe func()) {
	wake = make(chan struct{}, 1)
	r.mu.Lock()
	r.wakes[wake] = true
	r.mu.Unlock()
	return wake, func() {
		r.mu.Lock()
		delete(r.wakes, wake)
		r.mu.Unlock()
	}
}

// wake tells the processors of this process, and those of others where there is
// a Waker.
func (r *Repository) wake() {
	r.mu.Lock()
	for wake := range r.wakes {
		signal(wake)
	}
	r.mu.Unlock()
	if r.config.Waker != nil {
		r.config.Waker.Notify(r.table("messages"))
	}
}

func signal(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// sleep waits, or returns the error of ctx.
func sleep(ctx context.Context, delay time.Duration) error {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
