package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/uptrace/bun"
)

var (
	// errHandlerReturned is what a goroutine gets that uses the transaction
	// after its handler returned.
	errHandlerReturned = errors.New("inbox: the handler has returned: its transaction is not available any more")
	errNestedOpen      = errors.New("inbox: the handler returned without ending a nested transaction")
	errStillRunning    = errors.New("inbox: the handler returned while a statement of its own was still running")
)

// guard stands between one handler call and the transaction. Every statement
// of the handler passes it, on whatever way: it refuses what would end the
// transaction, knows whether one was sent and whether one failed, and shuts
// when the handler returns.
type guard struct {
	db      *database
	tx      querier         // the real transaction
	handler context.Context // ends with the handler call

	mu         sync.Mutex
	idle       sync.Cond // signalled when running becomes 0
	closed     bool
	stray      bool // a statement was running when the handler returned
	running    int
	statements int
	refused    error     // a statement that was refused, though the handler may have swallowed it
	aborted    error     // PostgreSQL: a failed statement, until a rollback to a savepoint
	lost       error     // the connection is gone, or SQLite has rolled the transaction back
	cut        bool      // a statement failed because its context ended
	last       *sql.Rows // PostgreSQL reports some errors behind the first row
	unread     []func() error
	nested     nested
	later      []Outcome // to be told after the commit
}

func newGuard(db *database, tx querier, handler context.Context) *guard {
	g := &guard{db: db, tx: tx, handler: handler}
	g.idle.L = &g.mu
	return g
}

// enter admits a statement of the handler, or says why not.
func (g *guard) enter(ctx context.Context, query string) (rollback bool, err error) {
	rollback, err = checkStatement(g.db.dialect, query)
	return rollback, g.admit(ctx, rollback, err)
}

// admit counts a statement in, unless there is a reason not to send it.
func (g *guard) admit(ctx context.Context, rollback bool, refused error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.last != nil {
		g.noteAborted(g.last.Err())
	}
	switch {
	case g.closed:
		return errHandlerReturned
	case refused != nil:
		if g.refused == nil {
			g.refused = refused
		}
		return refused
	case g.lost != nil:
		return fmt.Errorf("%w: %w", ErrTransactionLost, g.lost)
	case ctx.Err() != nil:
		return ctx.Err()
	case g.aborted != nil && !rollback:
		// PostgreSQL would refuse it too, with 25P02, but that makes pgdriver
		// close the connection.
		return fmt.Errorf("inbox: not sent, since an earlier statement has failed: %w", g.aborted)
	}
	g.running++
	g.statements++
	return nil
}

// leave notes how the statement ended.
func (g *guard) leave(ctx context.Context, rollback bool, err error) {
	rolledBack := err != nil && g.db.dialect == sqliteDialect && g.rolledBack(ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running--; g.running == 0 {
		g.idle.Broadcast()
	}
	switch {
	case err == nil:
		if rollback {
			g.aborted = nil
		}
	case g.db.dialect == postgresDialect:
		// Any error of the server ends the transaction; one of the client has
		// cost the connection, or was none of the statement's.
		g.cut = g.cut || ended(ctx)
		g.noteAborted(err)
		if sqlState(err) == "" && (ended(ctx) || connectionLost(err)) {
			g.lost = err
		}
	case rolledBack:
		g.cut = g.cut || ended(ctx)
		g.lost = err
	}
}

// noteAborted keeps the first error of the server that aborted the transaction.
func (g *guard) noteAborted(err error) {
	if g.aborted == nil && g.db.dialect == postgresDialect && sqlState(err) != "" {
		g.aborted = err
	}
}

// ended is true a moment before ctx says so: drivers watch its deadline too.
func ended(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// rolledBack finds out whether SQLite has given up the transaction after an
// error, as it does for interrupted writes and ON CONFLICT ROLLBACK. What
// follows would commit by itself: https://www.sqlite.org/lang_transaction.html
// If BEGIN works, there was none; the new one is rolled back in its place.
func (g *guard) rolledBack(ctx context.Context) bool {
	ctx, cancel := detached(ctx)
	defer cancel()
	_, err := g.tx.ExecContext(ctx, "BEGIN")
	return sqliteCode(err) == 0
}

// close shuts the guard and waits for a statement that a stray goroutine is
// still running, at most for grace. It reports what the handler left open.
func (g *guard) close(grace time.Duration) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	if g.running == 0 && !g.stray {
		return nil
	}
	deadline := time.Now().Add(grace) // before that of the timer
	timer := time.AfterFunc(grace, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.idle.Broadcast()
	})
	defer timer.Stop()
	for g.running > 0 && time.Now().Before(deadline) {
		g.idle.Wait()
	}
	return errStillRunning
}

// used reports how many statements the handler sent, whether the transaction was
// lost under it, and whether that was its own doing: through the end of a
// context, or since it went on after an error.
func (g *guard) used() (statements int, undone, own bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	failed := g.aborted != nil && !g.db.dialect.handlerInterrupted(g.aborted)
	return g.statements, g.lost != nil, g.lost != nil && g.cut || failed
}

// tell keeps outcomes of the handler's own messages until its transaction is
// committed.
func (g *guard) tell(outcomes []Outcome) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.later = append(g.later, outcomes...)
}

func (g *guard) committed() []Outcome {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.later
}

// verdict adds to the handler's error what it did not say. open is what close
// returned.
func (g *guard) verdict(err, open error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.refused != nil && !errors.Is(err, g.refused):
		return errors.Join(g.refused, err)
	case err != nil && g.aborted != nil && !errors.Is(err, g.aborted) && g.db.dialect.handlerInterrupted(g.aborted):
		return fmt.Errorf("%w: %w", err, g.aborted) // so that it is not charged
	case err != nil:
		return err
	case g.nested.left && !g.stray:
		return errNestedOpen // what close may have waited for is its rollback by database/sql
	case open != nil:
		return open
	case g.aborted != nil:
		return fmt.Errorf("inbox: the handler returned nil although a statement had failed: %w", g.aborted)
	case g.lost != nil:
		return fmt.Errorf("inbox: the handler returned nil although its transaction was lost: %w", g.lost)
	}
	return nil
}

// keep remembers how to close what a query returned. On PostgreSQL an earlier
// one is read to its end, or the connection would have been busy.
func (g *guard) keep(rows *sql.Rows, closer func() error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last = rows
	if g.db.dialect == postgresDialect {
		g.unread = g.unread[:0]
	}
	g.unread = append(g.unread, closer)
}

// returned ends what the handler that has just returned left open: unread rows
// would keep the connection busy. It comes before the handler's context ends,
// since that costs PostgreSQL's drivers the connection of a busy query; after
// grace it ends that context with cancel.
func (g *guard) returned(grace time.Duration, cancel context.CancelFunc) {
	g.awaitRollbacks(grace)
	g.mu.Lock()
	g.nested.left = len(g.nested.open)+len(g.nested.inner) > 0
	g.stray = g.running > 0
	unread := g.unread
	g.unread = nil
	g.mu.Unlock()
	if len(unread) == 0 {
		return
	}
	defer time.AfterFunc(grace, cancel).Stop()
	for _, closer := range unread {
		err := closer()
		g.mu.Lock()
		g.noteAborted(err)
		g.mu.Unlock()
	}
}

// bound returns a context that also ends with the handler call, so that no
// statement outlives it, whatever context the handler passes. release is nil
// when ctx is such a context already.
func (g *guard) bound(ctx context.Context) (_ context.Context, release func()) {
	if ctx.Done() == g.handler.Done() {
		return ctx, nil
	}
	ctx, done := context.WithCancelCause(ctx)
	cancel := func() {}
	if deadline, ok := g.handler.Deadline(); ok {
		// Drivers that do not watch the context read its deadline.
		ctx, cancel = context.WithDeadline(ctx, deadline)
	}
	stop := context.AfterFunc(g.handler, func() { done(context.Cause(g.handler)) })
	return ctx, func() { stop(); cancel(); done(nil) }
}

// ExecContext sends a statement as it stands.
func (g *guard) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	ctx, release := g.bound(ctx)
	if release != nil {
		defer release()
	}
	rollback, err := g.enter(ctx, query)
	if err != nil {
		return nil, err
	}
	result, err := g.tx.ExecContext(ctx, query, args...)
	g.leave(ctx, rollback, err)
	if err == nil {
		g.follow(query)
	}
	return result, err
}

// QueryContext sends a query as it stands. The rows may be read until the
// handler returns.
func (g *guard) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	ctx, release := g.bound(ctx)
	if release != nil {
		context.AfterFunc(g.handler, release)
	}
	rollback, err := g.enter(ctx, query)
	if err != nil {
		return nil, err
	}
	rows, err := g.tx.QueryContext(ctx, query, args...)
	g.leave(ctx, rollback, err)
	if err == nil {
		g.keep(rows, func() error { return errors.Join(rows.Close(), rows.Err()) })
	}
	return rows, err
}

// QueryRowContext is QueryContext for one row.
func (g *guard) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	ctx, release := g.bound(ctx)
	if release != nil {
		context.AfterFunc(g.handler, release)
	}
	rollback, err := g.enter(ctx, query)
	if err != nil {
		return errorRow(ctx, err)
	}
	row := g.tx.QueryRowContext(ctx, query, args...)
	g.leave(ctx, rollback, row.Err())
	g.keep(nil, func() error { return row.Scan() }) // which closes it
	return row
}

// ours is the way through a guard for our own statements, when a handler hands
// its transaction to Add or HandleOnceTx: they are not read for keywords.
type ours struct{ *guard }

func (o ours) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	rollback := strings.HasPrefix(query, "ROLLBACK TO ")
	if err := o.admit(ctx, rollback, nil); err != nil {
		return nil, err
	}
	result, err := o.tx.ExecContext(ctx, query, args...)
	o.leave(ctx, rollback, err)
	return result, err
}

func (o ours) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := o.admit(ctx, false, nil); err != nil {
		return nil, err
	}
	rows, err := o.tx.QueryContext(ctx, query, args...)
	o.leave(ctx, false, err)
	return rows, err
}

var (
	_ bun.IConn = (*guard)(nil)
	_ bun.IConn = ours{}
)
