package dedupe

import (
	"context"
	"fmt"
	"time"
)

// Store keeps keys where all processes see them. A key is free, held (somebody
// is running, until the lease ends) or confirmed (somebody has run, until the TTL
// ends). Each method is atomic, and each may be repeated after an error: the
// token says whose call it is. Times are measured by the store's clock, never by
// the callers'. Package dedupetest checks all of this.
//
// A store is safe for concurrent use and returns when ctx ends. Keys are checked
// before they get here.
type Store interface {
	// Reserve takes a free key for token until the lease ends, and extends the
	// lease of a key that token holds already. Otherwise it changes nothing and
	// says who is in the way.
	Reserve(ctx context.Context, key Key, token string, lease time.Duration) (Reservation, error)

	// Confirm remembers the key for at least ttl, whoever holds it: a run that
	// has happened is true, even when its lease was lost. held reports whether the
	// lease of token was still running; when token has confirmed the key before,
	// it is true. An earlier confirmation that lasts longer keeps its end.
	Confirm(ctx context.Context, key Key, token string, ttl time.Duration) (held bool, err error)

	// Release frees a key that token holds. It never touches another's key, nor
	// a confirmed one. held reports whether the lease was still running.
	Release(ctx context.Context, key Key, token string) (held bool, err error)
}

// Reservation is what Reserve found.
type Reservation struct {
	State State
	// Remaining is how long the state lasts: the lease when Held (unless it is
	// extended), the rest of the TTL when Confirmed.
	Remaining time.Duration
}

// State is the answer of Reserve.
type State uint8

const (
	// Reserved: the caller holds the key now.
	Reserved State = iota + 1
	// Held: another token holds the key.
	Held
	// Confirmed: the key is remembered.
	Confirmed
)

// String returns "reserved", "held" or "confirmed".
func (s State) String() string {
	switch s {
	case Reserved:
		return "reserved"
	case Held:
		return "held"
	case Confirmed:
		return "confirmed"
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// Cleaner is what a store has in addition when its expired keys do not go away
// by themselves. A guard's CleanupExpired calls it.
type Cleaner interface {
	// CleanupExpired deletes at most limit keys whose lease or TTL has ended,
	// and returns how many there were.
	CleanupExpired(ctx context.Context, limit int) (deleted int, err error)
}
