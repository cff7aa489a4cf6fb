package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

const (
	// verbWait is how long a verb waits for a lock, that of a running handler
	// above all.
	verbWait = 2 * time.Second
	// verbTries is how often a verb begins again where the database wants that.
	verbTries = 3
	// unparkAtOnce is how many messages of a key a verb makes claimable; the
	// processor that finishes them sees to the rest.
	unparkAtOnce = 32
)

// acting runs a verb's transaction. ErrBusy when somebody holds what it needs.
func (r *Repository) acting(ctx context.Context, fn func(ctx context.Context, tx querier) error) error {
	r.accepting.Add(1) // a batch on SQLite ends early for operators, too
	defer r.accepting.Add(-1)
	pause := Backoff{Base: 20 * time.Millisecond, Max: time.Second}
	for try := 1; ; try++ {
		err := r.inTransaction(ctx, txOptions{isolation: sql.LevelReadCommitted}, func(ctx context.Context, tx querier) error {
			if pg, ok := r.store.(*postgres); ok {
				if err := pg.setLockTimeout(ctx, tx, verbWait); err != nil {
					return err
				}
			}
			return fn(ctx, tx)
		})
		switch code := r.dialect.retryCode(err); {
		case code == "":
			return err
		case code == codeLockTimeout, try == verbTries, sleep(ctx, pause.Delay(try)) != nil:
			return fmt.Errorf("%w: %w", ErrBusy, err)
		}
	}
}

// acted wraps what a verb returns; its own errors stay as they are.
func (r *Repository) acted(operation string, err error) error {
	for _, own := range []error{ErrNotFound, ErrNotRetryable, ErrNotDiscardable, ErrPayloadRemoved, ErrBusy} {
		if errors.Is(err, own) {
			return err
		}
	}
	var payload *PayloadError
	if errors.As(err, &payload) {
		return err
	}
	return r.wrap(operation, err)
}
