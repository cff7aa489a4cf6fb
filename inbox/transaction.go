package inbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"
)

// endTimeout bounds the statements that end a transaction or record a failure
// after the caller's context is gone.
const endTimeout = 10 * time.Second

// querier is where our statements go: a transaction's raw connection, or a pool.
type querier = bun.IConn

// asTransaction returns the connection behind tx for our own statements.
// Only what is a transaction passes.
func asTransaction(tx bun.IConn) (querier, error) {
	switch tx := tx.(type) {
	case bun.Tx:
		if tx.Tx != nil {
			return tx.Tx, nil
		}
	case *bun.Tx:
		if tx != nil && tx.Tx != nil {
			return tx.Tx, nil
		}
	case *sql.Tx:
		if tx != nil {
			return tx, nil
		}
	case *handle:
		if tx != nil {
			return ours{tx.guard}, nil
		}
	}
	return nil, fmt.Errorf("%w: %T", ErrNoTransaction, tx)
}

// txOptions says how a transaction of ours begins.
type txOptions struct {
	isolation sql.IsolationLevel // PostgreSQL; SQLite is always serializable
	lock      string             // SQLite: the statement that takes the write lock. Default: sqliteLock
}

// inTransaction runs fn in a transaction on a connection of its own and commits
// when fn returns nil. Whatever else happens (error, panic, Goexit), it rolls
// back. A connection that can serve nobody any more leaves the pool.
func (d *database) inTransaction(ctx context.Context, opts txOptions, fn func(ctx context.Context, tx querier) error) (err error) {
	if d.dialect == sqliteDialect {
		release, err := d.takeTurn(ctx)
		if err != nil {
			return err
		}
		defer release()
		d.prepared.catchUp(ctx)
	}
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("take a connection: %w", err)
	}
	defer func() { _ = conn.Close() }()
	return d.onConn(ctx, conn, opts, fn)
}

// onConn is inTransaction on a connection that stays with the caller.
func (d *database) onConn(ctx context.Context, conn bun.Conn, opts txOptions, fn func(ctx context.Context, tx querier) error) (err error) {
	defer func() {
		// A connection of SQLite cannot be lost, and may be the database itself.
		if d.dialect == postgresDialect && connectionLost(err) {
			_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		}
	}()
	tx, end, err := d.begin(ctx, conn, opts)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer end()
	committed := false
	defer func() {
		if !committed {
			_ = tx.Rollback()
		}
	}()
	if err := fn(ctx, d.own(tx.Tx)); err != nil {
		return err
	}
	committed = true
	if err := tx.Commit(); err != nil {
		return &commitError{err}
	}
	return nil
}

// own is how our own statements, and those of handlers, reach a transaction.
func (d *database) own(tx *sql.Tx) querier {
	if d.dialect == sqliteDialect {
		return &preparedTx{Tx: tx, prepared: d.prepared}
	}
	return tx
}

// takeTurn waits for the one writer of SQLite within this process: in order, and
// no longer than ctx, where SQLite itself would poll until its busy timeout.
func (d *database) takeTurn(ctx context.Context) (release func(), err error) {
	if a, ok := ctx.Value(ambientKey).(*ambient); ok && a.handle.db.DB == d.db.DB {
		return nil, errWaitsForItself
	}
	select {
	case d.turn <- struct{}{}:
		return func() { <-d.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

var errWaitsForItself = errors.New("inbox: SQLite has one writer, and it is the transaction of this handler: use Add or HandleOnceTx with inbox.DB")

// begin starts a transaction that ctx can keep from beginning, but not end:
// database/sql would roll back between two of our own statements. On SQLite the
// transaction holds the write lock when begin returns. Call end last.
func (d *database) begin(ctx context.Context, conn bun.Conn, opts txOptions) (tx bun.Tx, end context.CancelFunc, err error) {
	var options *sql.TxOptions
	if d.dialect == postgresDialect {
		options = &sql.TxOptions{Isolation: opts.isolation}
	}
	lifetime, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, end)
	tx, err = conn.BeginTx(lifetime, options)
	if err == nil && !stop() {
		_ = tx.Rollback()
		err = ctx.Err()
	}
	if err == nil && d.dialect == sqliteDialect {
		lock, way := opts.lock, querier(tx.Tx)
		if lock == "" {
			lock, way = sqliteLock, d.prepared.on(d.own(tx.Tx))
		}
		if _, err = d.exec(ctx, way, d.text(lock)); err != nil {
			_ = tx.Rollback()
		}
	}
	if err != nil {
		end()
		return bun.Tx{}, nil, err
	}
	return tx, end, nil
}

// commitError says that COMMIT itself failed. Unless the server said so with a
// code, the transaction may or may not be in.
type commitError struct{ err error }

func (e *commitError) Error() string { return "commit: " + e.err.Error() }
func (e *commitError) Unwrap() error { return e.err }

// rollbackTo undoes what came after a savepoint, and the savepoint.
func rollbackTo(ctx context.Context, tx querier, savepoint string) error {
	if _, err := tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT "+savepoint); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, "RELEASE SAVEPOINT "+savepoint)
	return err
}

// detached returns a context for what has to be done although ctx is gone.
func detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
}
