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
	running    int
	statements int
	refused    error // a statement that was refused, though the handler may have swallowed it
	aborted    error // PostgreSQL: a failed statement, until a rollback to a savepoint
	lost       error // SQLite: the database rolled the transaction back
	savepoints int   // opened so far, for their names
	nested     int   // open now
}

func newGuard(db *database, tx querier, handler context.Context) *guard {
	g := &guard{db: db, tx: tx, handler: handler}
	g.idle.L = &g.mu
	return g
}

// enter admits a statement, or says why not.
func (g *guard) enter(query string) (rollback bool, err error) {
	rollback, err = checkStatement(g.db.dialect, query)
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed:
		return false, errHandlerReturned
	case err != nil:
		if g.refused == nil {
			g.refused = err
		}
		return false, err
	case g.lost != nil:
		return false, fmt.Errorf("%w: %w", ErrTransactionLost, g.lost)
	}
	g.running++
	g.statements++
	return rollback, nil
}

// leave notes how the statement ended.
func (g *guard) leave(rollback bool, err error) {
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
		// Any error of the server ends the transaction; a client-side one
		// either did not reach it or has cost the connection.
		if sqlState(err) != "" && g.aborted == nil {
			g.aborted = err
		}
	case g.db.dialect == sqliteDialect:
		// An interrupted write rolls the whole transaction back, and what
		// follows would commit by itself: https://www.sqlite.org/c3ref/interrupt.html
		if sqliteCode(err) == sqliteInterrupt || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			g.lost = err
		}
	}
}

// close shuts the guard and waits for a statement that a stray goroutine is
// still running, at most for grace. It reports what the handler left open.
func (g *guard) close(grace time.Duration) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	if g.running == 0 {
		if g.nested > 0 {
			return errNestedOpen
		}
		return nil
	}
	timer := time.AfterFunc(grace, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.idle.Broadcast()
	})
	defer timer.Stop()
	for deadline := time.Now().Add(grace); g.running > 0 && time.Now().Before(deadline); {
		g.idle.Wait()
	}
	return errStillRunning
}

// used reports how many statements the handler sent, and whether the database
// rolled back under it.
func (g *guard) used() (statements int, undone bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.statements, g.lost != nil
}

// verdict adds to the handler's error what it did not say. open is what close
// returned.
func (g *guard) verdict(err, open error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.refused != nil && !errors.Is(err, g.refused):
		return errors.Join(g.refused, err)
	case err != nil:
		return err
	case open != nil:
		return open
	case g.aborted != nil:
		return fmt.Errorf("inbox: the handler returned nil although a statement had failed: %w", g.aborted)
	case g.lost != nil:
		return fmt.Errorf("inbox: the handler returned nil although the database had rolled back: %w", g.lost)
	}
	return nil
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
	rollback, err := g.enter(query)
	if err != nil {
		return nil, err
	}
	ctx, release := g.bound(ctx)
	if release != nil {
		defer release()
	}
	result, err := g.tx.ExecContext(ctx, query, args...)
	g.leave(rollback, err)
	return result, err
}

// QueryContext sends a query as it stands. The rows may be read until the
// handler returns.
func (g *guard) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	rollback, err := g.enter(query)
	if err != nil {
		return nil, err
	}
	ctx, release := g.bound(ctx)
	rows, err := g.tx.QueryContext(ctx, query, args...)
	g.leave(rollback, err)
	if release != nil {
		context.AfterFunc(g.handler, release)
	}
	return rows, err
}

// QueryRowContext is QueryContext for one row.
func (g *guard) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	rollback, err := g.enter(query)
	if err != nil {
		return errorRow(ctx, err)
	}
	ctx, release := g.bound(ctx)
	row := g.tx.QueryRowContext(ctx, query, args...)
	g.leave(rollback, row.Err())
	if release != nil {
		context.AfterFunc(g.handler, release)
	}
	return row
}

// savepoint opens a nested transaction of the handler. end releases it or
// rolls back to it; it works after the handler's context is gone.
func (g *guard) savepoint(ctx context.Context) (end func(commit bool) error, err error) {
	if _, err := g.enter(""); err != nil {
		return nil, err
	}
	g.mu.Lock()
	g.savepoints++
	name := fmt.Sprintf("%snested_%d", ownSavepoint, g.savepoints)
	g.mu.Unlock()
	_, err = g.tx.ExecContext(ctx, "SAVEPOINT "+name)
	g.leave(false, err)
	if err != nil {
		return nil, err
	}
	g.nest(+1)
	return func(commit bool) error {
		ctx, cancel := detached(ctx)
		defer cancel()
		defer g.nest(-1)
		if commit {
			return g.own(ctx, false, "RELEASE SAVEPOINT "+name)
		}
		if err := g.own(ctx, true, "ROLLBACK TO SAVEPOINT "+name); err != nil {
			return err
		}
		return g.own(ctx, false, "RELEASE SAVEPOINT "+name)
	}, nil
}

func (g *guard) nest(change int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.nested += change
}

// own sends a statement of ours on the handler's behalf.
func (g *guard) own(ctx context.Context, rollback bool, query string) error {
	if _, err := g.enter(""); err != nil {
		return err
	}
	_, err := g.tx.ExecContext(ctx, query)
	g.leave(rollback, err)
	return err
}

// ours is the way through a guard for our own statements, when a handler hands
// its transaction to Add or HandleOnceTx: they are not read for keywords.
type ours struct{ *guard }

func (o ours) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if _, err := o.enter(""); err != nil {
		return nil, err
	}
	result, err := o.tx.ExecContext(ctx, query, args...)
	o.leave(strings.HasPrefix(query, "ROLLBACK TO "), err)
	return result, err
}

func (o ours) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if _, err := o.enter(""); err != nil {
		return nil, err
	}
	rows, err := o.tx.QueryContext(ctx, query, args...)
	o.leave(false, err)
	return rows, err
}

var (
	_ bun.IConn = (*guard)(nil)
	_ bun.IConn = ours{}
)
