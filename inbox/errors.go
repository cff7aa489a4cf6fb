package inbox

import (
	"errors"
	"fmt"
)

var (
	// ErrNoTransaction is returned by Add, GetMany and Process when they are
	// given a pool or a connection, or nil: locks and atomicity would end with
	// each statement. Pass a bun.Tx, a *sql.Tx, or what DB returns in a handler.
	ErrNoTransaction = errors.New("inbox: a transaction is needed, not a pool or a connection")

	// ErrBatchTooLarge is returned by Add and Accept, before any SQL, for more
	// entries or more payload bytes than Config allows in one call. Split the call.
	ErrBatchTooLarge = errors.New("inbox: too many entries or payload bytes in one call")

	// ErrUnregistered is wrapped in the EntryError that Add and Accept return
	// for a message whose type (or Raw name) the NameMap does not know.
	ErrUnregistered = errors.New("not registered in the name map")

	// ErrPayloadTooLarge is wrapped in the EntryError that Add and Accept
	// return for a payload over Config.MaxPayload.
	ErrPayloadTooLarge = errors.New("larger than the limit")

	// ErrNotMigrated is returned by Run and Drain when the tables are missing.
	// Call Repository.Migrate, or apply the files in inbox/migrations.
	ErrNotMigrated = errors.New("inbox: the tables are missing: call Migrate first")

	// ErrSchemaNewer is returned by Migrate, Run and Drain when the tables were
	// migrated by a newer release that this one must not touch. Upgrade the program.
	ErrSchemaNewer = errors.New("inbox: the tables belong to a newer release")

	// ErrMemoryDatabase is returned by Migrate for a SQLite database in memory
	// behind a pool of several connections: each would be a database of its own.
	// Call SetMaxOpenConns(1) on the pool, or use a file.
	ErrMemoryDatabase = errors.New("inbox: an in-memory SQLite database needs SetMaxOpenConns(1)")

	// ErrUnhandled is returned by Process for a name that no handler of this
	// processor serves. The message is left as it was.
	ErrUnhandled = errors.New("inbox: no handler for this name")

	// ErrTransactionLost is returned by Process when the transaction ended under
	// the handler (connection lost, rolled back by the database). Nothing is
	// recorded: roll back, and the message is claimed again.
	ErrTransactionLost = errors.New("inbox: the transaction was lost while the handler ran")

	// ErrNoReceipt is returned by MarkProcessed when no receipt with this
	// identity was recorded.
	ErrNoReceipt = errors.New("inbox: no such receipt: call RecordReceipt first")

	// ErrNotFound is returned by Status for an identity that is not stored, or
	// no longer.
	ErrNotFound = errors.New("inbox: no such message")

	// ErrRunning is returned by Run when this processor already runs.
	ErrRunning = errors.New("inbox: the processor is already running")
)

// EntryError names the bad entry of a call to Add or Accept, or a bad Receipt. It is permanent:
// the same entry will never be stored. No SQL was sent, and the transaction is
// as usable as before.
type EntryError struct {
	Index int    // position in the slice that was given; -1 for a Receipt
	Field string // "message id", "source", "name", "ordering key", "payload", ...
	Err   error
}

// Error says which entry is wrong, and why. It never shows the value.
func (e *EntryError) Error() string {
	if e.Index < 0 {
		return fmt.Sprintf("inbox: %s: %v", e.Field, e.Err)
	}
	return fmt.Sprintf("inbox: entry %d: %s: %v", e.Index, e.Field, e.Err)
}

// Unwrap returns the reason.
func (e *EntryError) Unwrap() error { return e.Err }

// RetryableError is what Add returns when the database asks for another try of
// the whole transaction: a deadlock (40P01), a serialization failure (40001), a
// lock timeout (55P03), or a busy SQLite file. Roll back and begin again.
// Accept does so by itself a few times before it returns one.
// The codes: https://www.postgresql.org/docs/current/errcodes-appendix.html
type RetryableError struct {
	Code string // the SQLSTATE, or "SQLITE_BUSY"
	Err  error
}

// Error shows the code and the driver's error.
func (e *RetryableError) Error() string {
	return fmt.Sprintf("inbox: retry the transaction (%s): %v", e.Code, e.Err)
}

// Unwrap returns the driver's error.
func (e *RetryableError) Unwrap() error { return e.Err }
