package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/mediator"
)

// Receipt says that a message was handled inline, without a second step. It
// lives in the inbox's table: inline and deferred handling of one identity
// exclude each other.
type Receipt struct {
	// Source and MessageID are those of the message, as in Entry.
	Source    string
	MessageID string
	// Name is the message's name, or the consumer's: two consumers of one
	// message need two names. It need not be registered.
	Name string
	// Metadata is kept with the receipt as JSON, as encoding/json writes it: at
	// most Config.MaxMetadata bytes. Nil: none.
	Metadata any
}

// Identity is the receipt's.
func (r Receipt) Identity() Identity { return Identity{r.Source, r.MessageID, r.Name} }

const onceSavepoint = ownSavepoint + "once"

// HandleOnce runs fn exactly when receipt is fresh, in one transaction with the
// receipt, and commits. A replay reports fresh = false and runs nothing; so does
// a message that Accept has stored, whether it is processed by now or not.
//
// An error (or a panic, or runtime.Goexit) of fn rolls everything back, the
// receipt included, so that a redelivery runs it again. Of two calls at once for
// one identity, one runs; the other waits for its commit, at most as long as
// ctx, and runs if the first rolled back.
//
// tx is what DB(ctx, db) gives as well: it has no Commit, and what would end the
// transaction is refused. Effects outside the database are at least once.
//
// Before any SQL: an *EntryError for a bad receipt, which is permanent. A
// *RetryableError when the database wants another try of the whole. After any
// error, have the message delivered again: if the commit was applied and only
// its reply was lost, the redelivery is not fresh.
func (r *Repository) HandleOnce(ctx context.Context, receipt Receipt, fn func(ctx context.Context, tx bun.IDB) error) (fresh bool, err error) {
	row, err := r.prepareReceipt(receipt)
	if err != nil {
		return false, err
	}
	r.accepting.Add(1)
	defer r.accepting.Add(-1)
	info := Info{Identity: row.Identity, Attempt: 1}
	began, observed := time.Now(), ctx
	var later []Outcome
	err = r.inTransaction(ctx, txOptions{isolation: sql.LevelReadCommitted}, func(ctx context.Context, tx querier) error {
		if fresh, err = r.store.receive(ctx, tx, row); err != nil || !fresh {
			return err
		}
		observed = r.started(ctx, []Info{info})
		later, err = r.inline(observed, tx, info, fn)
		return err
	})
	if err != nil {
		return false, r.wrap("handle once", err)
	}
	o := Observation{Kind: SawDuplicate, Message: info, Inline: true}
	if fresh {
		r.committed(ctx, later)
		o.Kind, o.Began, o.Duration = SawProcessed, began, time.Since(began)
	}
	r.observe(observed, r.config.Logger, o)
	return fresh, nil
}

// HandleOnceTx is HandleOnce inside the caller's transaction, in a savepoint: an
// error of fn undoes the receipt and what fn wrote, and leaves the transaction
// usable. The caller commits. ErrNoTransaction when tx is not a transaction.
func (r *Repository) HandleOnceTx(ctx context.Context, tx bun.IConn, receipt Receipt, fn func(ctx context.Context, tx bun.IDB) error) (fresh bool, err error) {
	row, err := r.prepareReceipt(receipt)
	if err != nil {
		return false, err
	}
	q, err := asTransaction(tx)
	if err != nil {
		return false, err
	}
	if _, err := q.ExecContext(ctx, "SAVEPOINT "+onceSavepoint); err != nil {
		return false, r.wrap("handle once", err)
	}
	done := false
	defer func() {
		if done {
			return
		}
		end, cancel := detached(ctx)
		defer cancel()
		if undo := rollbackTo(end, q, onceSavepoint); undo != nil {
			err = errors.Join(err, fmt.Errorf("%w: %w", ErrTransactionLost, undo))
		}
	}()
	if fresh, err = r.store.receive(ctx, q, row); err == nil && fresh {
		// What fn had stored is told of where an outer handler's commit is known
		// of; the caller's own is not.
		var later []Outcome
		if later, err = r.inline(ctx, q, Info{Identity: row.Identity, Attempt: 1}, fn); err == nil && r.handling(ctx) != nil {
			r.Committed(ctx, later)
		}
	}
	if err == nil {
		_, err = q.ExecContext(ctx, "RELEASE SAVEPOINT "+onceSavepoint)
	}
	if err != nil {
		return false, r.wrap("handle once", err)
	}
	done = true
	return fresh, nil
}

// HandleOnceResult is HandleOnce for a function with a result. A replay returns
// the zero T: results are not stored.
func HandleOnceResult[T any](ctx context.Context, r *Repository, receipt Receipt, fn func(ctx context.Context, tx bun.IDB) (T, error)) (result T, fresh bool, err error) {
	fresh, err = r.HandleOnce(ctx, receipt, func(ctx context.Context, tx bun.IDB) (err error) {
		result, err = fn(ctx, tx)
		return err
	})
	if err != nil {
		var zero T
		return zero, false, err
	}
	return result, fresh, nil
}

// RecordReceipt records receipt in the caller's transaction and reports whether
// it is fresh: do the work exactly then. The receipt is stored as processed; it
// commits or rolls back with the work. It waits for another transaction that is
// recording the same identity.
//
// Before any SQL: an *EntryError, ErrNoTransaction; the transaction stays usable.
func (r *Repository) RecordReceipt(ctx context.Context, tx bun.IConn, receipt Receipt) (fresh bool, err error) {
	row, err := r.prepareReceipt(receipt)
	if err != nil {
		return false, err
	}
	q, err := asTransaction(tx)
	if err != nil {
		return false, err
	}
	fresh, err = r.store.receive(ctx, q, row)
	return fresh, r.wrap("record receipt", err)
}

// MarkProcessed stamps a receipt that RecordReceipt recorded with the present
// time and with receipt.Metadata, the outcome's. It is optional. Without such a
// receipt it returns ErrNoReceipt.
func (r *Repository) MarkProcessed(ctx context.Context, tx bun.IConn, receipt Receipt) error {
	row, err := r.prepareReceipt(receipt)
	if err != nil {
		return err
	}
	q, err := asTransaction(tx)
	if err != nil {
		return err
	}
	err = r.store.stamp(ctx, q, row)
	if errors.Is(err, errNotClaimed) {
		return ErrNoReceipt
	}
	return r.wrap("mark processed", err)
}

// IsFresh reports that nothing is stored under this identity. It is a look, not
// a lock: only RecordReceipt, HandleOnce and Add decide.
func (r *Repository) IsFresh(ctx context.Context, identity Identity) (bool, error) {
	found, err := r.store.existing(ctx, r.db.DB, []Identity{identity})
	return len(found) == 0, r.wrap("is fresh", err)
}

// Once returns a mediator middleware that puts the handlers of a message inside
// HandleOnce. receipt says which identity a message has; ok = false passes the
// message on as it is. A replay returns a nil response and no error.
func (r *Repository) Once(receipt func(ctx context.Context, message any) (_ Receipt, ok bool)) mediator.Middleware {
	return func(ctx context.Context, message any, next mediator.Next) (response any, err error) {
		rec, ok := receipt(ctx, message)
		if !ok {
			return next(ctx, message)
		}
		response, _, err = HandleOnceResult(ctx, r, rec, func(ctx context.Context, _ bun.IDB) (any, error) {
			return next(ctx, message)
		})
		return response, err
	}
}

// inline runs fn with a guarded handle on tx. It returns what fn had stored and
// said Committed of.
func (r *Repository) inline(ctx context.Context, tx querier, info Info, fn func(ctx context.Context, tx bun.IDB) error) ([]Outcome, error) {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	handle := &handle{db: r.db}
	inner = context.WithValue(inner, ambientKey, &ambient{handle: handle, info: info})
	handle.guard = newGuard(r.database, tx, inner)
	defer handle.close()
	err := fn(inner, handle)
	handle.guard.returned(endTimeout, cancel)
	open := handle.guard.close(endTimeout)
	return handle.guard.committed(), handle.guard.verdict(err, open)
}

func (r *Repository) prepareReceipt(receipt Receipt) (row, error) {
	fail := func(field string, err error) (row, error) {
		return row{}, &EntryError{Index: -1, Field: field, Err: err}
	}
	limit := r.config.MaxIdentifier
	if err := checkIdentifier(receipt.MessageID, limit, false); err != nil {
		return fail("message id", err)
	}
	if err := checkIdentifier(receipt.Source, limit, true); err != nil {
		return fail("source", err)
	}
	if err := checkIdentifier(receipt.Name, limit, false); err != nil {
		return fail("name", err)
	}
	prepared := row{Identity: receipt.Identity()}
	switch metadata := receipt.Metadata.(type) {
	case nil:
	case map[string]string:
		text, err := encodeMetadata(metadata, r.config.MaxMetadata)
		if err != nil {
			return fail("metadata", err)
		}
		prepared.metadata = text
	default:
		text, err := safeEncode(jsonCodec{}, metadata)
		if err == nil && len(text) > r.config.MaxMetadata {
			err = fmt.Errorf("%d bytes as JSON, at most %d", len(text), r.config.MaxMetadata)
		}
		if err != nil {
			return fail("metadata", err)
		}
		prepared.metadata = string(text)
	}
	return prepared, nil
}
