package inbox

import (
	"context"
	"time"
)

// Backlog says how far the processors are behind.
type Backlog struct {
	// Pending counts the messages that are neither processed nor dead, retries
	// and messages due later included, up to the limit of the call.
	Pending int64
	// OldestDue is how long the oldest due message has been waiting. A retry
	// waits from its new due time on.
	OldestDue time.Duration
}

// Backlog counts at most limit pending messages of the registered names; with a
// limit of zero or less it counts none. Unlike Stats it costs the same however
// long the queue is: it is meant to be asked often. Messages under names that
// this process does not know are left out.
func (r *Repository) Backlog(ctx context.Context, limit int64) (Backlog, error) {
	var names []string
	for _, reg := range r.names.registrations() {
		names = append(names, reg.names()...)
	}
	if len(names) == 0 {
		return Backlog{}, nil
	}
	backlog, err := r.store.backlog(ctx, names, max(limit, 0))
	return backlog, r.wrap("backlog", err)
}
