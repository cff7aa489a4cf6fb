package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// StatusKind is where a message stands.
type StatusKind uint8

const (
	// Pending: it will be processed; with attempts, again.
	Pending StatusKind = iota + 1
	// Processed: its effect is committed.
	Processed
	// Dead: it was given up, and is kept for an operator.
	Dead
)

// String returns "pending", "processed" or "dead".
func (k StatusKind) String() string {
	switch k {
	case Pending:
		return "pending"
	case Processed:
		return "processed"
	case Dead:
		return "dead"
	}
	return fmt.Sprintf("StatusKind(%d)", uint8(k))
}

// Status is what may be told about a message without showing what is in it.
type Status struct {
	// ID is the message's number in accept order.
	ID int64
	// Identity is what it is stored under; Name may be a former name.
	Identity Identity
	Kind     StatusKind
	// Attempts is how many attempts have failed.
	Attempts int
	// All times are by the database's clock, in UTC.
	ReceivedAt  time.Time
	ProcessedAt time.Time // zero unless Processed
	Due         time.Time // when the next attempt may start; zero unless Pending
}

// Status looks one message up, under the name of the identity and all names its
// type has had. ErrNotFound when there is none. No payload, metadata or error
// text is read.
func (r *Repository) Status(ctx context.Context, identity Identity) (Status, error) {
	// What Add refuses cannot be there, and must not reach a statement.
	for _, value := range []string{identity.Source, identity.MessageID, identity.Name} {
		if checkIdentifier(value, r.config.MaxIdentifier, true) != nil {
			return Status{}, ErrNotFound
		}
	}
	names := []string{identity.Name}
	if reg := r.names.forName(identity.Name); reg != nil {
		names = reg.names()
	}
	status, err := r.store.status(ctx, identity, names)
	if errors.Is(err, ErrNotFound) {
		return Status{}, ErrNotFound
	}
	return status, r.wrap("status", err)
}

// kindOf translates the stored status.
func kindOf(status int) StatusKind { return StatusKind(status + 1) }
