package dedupe

import (
	"errors"
	"fmt"
)

var (
	// ErrLeaseLost is the cause of the end of fn's context (context.Cause) when
	// another process may run the same key by now. Stop if you can; what fn
	// returns decides as always.
	ErrLeaseLost = errors.New("dedupe: the lease was lost: another process may run this key")

	// ErrNested is returned by Do when it is called for a key by the very fn that
	// runs for this key: it would wait for itself.
	ErrNested = errors.New("dedupe: Do was called for a key inside its own run")
)

// StoreError is returned by Do when the store failed and Config.OnStoreError is
// Fail, and by CleanupExpired. Try again later.
type StoreError struct {
	Op  string // "reserve", "confirm", "release" or "clean up"
	Err error
}

// Error shows the operation and the store's error.
func (e *StoreError) Error() string { return fmt.Sprintf("dedupe: %s: %v", e.Op, e.Err) }

// Unwrap returns the store's error.
func (e *StoreError) Unwrap() error { return e.Err }
