package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"
)

// secondWait is how long the examination waits for a second connection. In a
// pool without one to spare, there is nothing to be found out.
const secondWait = 500 * time.Millisecond

// pooler finds out whether a pooler in transaction mode stands in between. Two
// connections have two backends, and keep them; behind such a pooler, the backend
// that one has just used serves the other's transaction. What needs a session,
// such as LISTEN or SET, does not work there.
func (e *examination) pooler(ctx context.Context) error {
	if e.db.Stats().MaxOpenConnections == 1 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, e.config.Timeout)
	defer cancel()
	first, err := e.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = first.Close() }()
	before, err := backend(ctx, first)
	if err != nil {
		return err
	}
	waiting, stop := context.WithTimeout(ctx, secondWait)
	defer stop()
	second, err := e.db.Conn(waiting)
	if err != nil {
		return nil //nolint:nilerr // see secondWait
	}
	defer func() { _ = second.Close() }()
	tx, err := second.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	other, err := backend(ctx, tx)
	if err != nil {
		return err
	}
	after, err := backend(ctx, first)
	if err != nil {
		return err
	}
	if other == before || after != before {
		e.find("pooler", Warning, "A pooler in transaction mode stands before the database",
			"The inbox works through it, but LISTEN and session settings do not: give wakeup.Open a connection string that leads past the pooler. If that is so already, ignore this finding.",
			fmt.Sprintf("one connection was served by the backends %d and %d, another meanwhile by %d", before, after, other))
	}
	return nil
}

func backend(ctx context.Context, db bun.IDB) (pid int, err error) {
	err = db.NewRaw(postgresBackend).Scan(ctx, &pid)
	return pid, err
}
