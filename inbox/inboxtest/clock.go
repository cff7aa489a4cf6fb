package inboxtest

import (
	"sync"
	"time"
)

// Clock is a clock that stands still until it is told to go on. Its Now stands in
// for the database's clock, so that a test reaches a retry, a due time or the end
// of a retention without waiting:
//
//	clock := inboxtest.NewClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
//	repo, err := inbox.NewRepository(db, names, inbox.Config{Clock: clock.Now})
//	...
//	clock.Advance(time.Hour) // what is due within the hour is due now
//
// It is safe for concurrent use. All repositories on one inbox should share it.
// A running processor learns of the new time when it looks next, at most
// ProcessorConfig.PollInterval later; Drain looks at once.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a Clock that shows start.
func NewClock(start time.Time) *Clock { return &Clock{now: start} }

// Now returns the time that the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock on; a negative d moves it back.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
