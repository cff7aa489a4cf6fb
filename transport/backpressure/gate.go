package backpressure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
)

// queryTimeout bounds the query that one caller makes for all.
const queryTimeout = 2 * time.Second

// Config holds the marks. At least one of them is required; the inbox is
// saturated while either is reached.
type Config struct {
	// MaxUnfinished is how many pending messages may wait, retries and messages
	// due later included. The query counts up to this number: ten thousand
	// take some 10 ms, a million takes a second. Zero: no such mark.
	MaxUnfinished int64
	// MaxAge is how long the oldest due message may wait. Zero: no such mark.
	MaxAge time.Duration
	// Refresh is how long an answer is used before the database is asked
	// again. Default 1 s.
	Refresh time.Duration
	// RetryAfter is what a sender is told to wait while saturated. Default 5 s,
	// and never less than Refresh.
	RetryAfter time.Duration
	// Clock replaces time.Now, for tests.
	Clock func() time.Time
}

func (c *Config) setDefaults() {
	if c.Refresh == 0 {
		c.Refresh = time.Second
	}
	if c.RetryAfter == 0 {
		c.RetryAfter = 5 * time.Second
	}
	c.RetryAfter = max(c.RetryAfter, c.Refresh)
	if c.Clock == nil {
		c.Clock = time.Now
	}
}

// validate joins every problem.
func (c *Config) validate() error {
	var problems []error
	report := func(text string) { problems = append(problems, fmt.Errorf("backpressure: config: %s", text)) }
	if c.MaxUnfinished == 0 && c.MaxAge == 0 {
		report("MaxUnfinished or MaxAge is required")
	}
	if c.MaxUnfinished < 0 {
		report("MaxUnfinished: negative")
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"MaxAge", c.MaxAge}, {"Refresh", c.Refresh}, {"RetryAfter", c.RetryAfter}} {
		if d.value < 0 {
			report(d.field + ": negative")
		}
	}
	return errors.Join(problems...)
}

// Gate knows whether the inbox is saturated. It is safe for concurrent use; one
// gate serves all handlers of a process.
type Gate struct {
	repo   *inbox.Repository
	config Config

	mu        sync.Mutex
	asking    bool
	asked     time.Time // when the last query ended; zero: never
	saturated bool
	err       error
}

// New returns a gate in front of repo. It sends no SQL.
func New(repo *inbox.Repository, config Config) (*Gate, error) {
	if repo == nil {
		return nil, errors.New("backpressure: New needs a repository")
	}
	if err := config.validate(); err != nil {
		return nil, err
	}
	config.setDefaults()
	return &Gate{repo: repo, config: config}, nil
}

// Saturated reports whether new messages should be put off, and for how long;
// retryAfter is zero otherwise. It waits for the database only when it is this
// caller's turn to ask, and not longer than two seconds.
//
// When the database did not answer, err says so until it does, and saturated is
// the last answer. The caller may ignore err and try to accept: that fails soon
// enough.
func (g *Gate) Saturated(ctx context.Context) (saturated bool, retryAfter time.Duration, err error) {
	if g.turn() {
		g.ask(ctx)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.saturated {
		retryAfter = g.config.RetryAfter
	}
	return g.saturated, retryAfter, g.err
}

// turn reports that the answer is old and nobody else is asking.
func (g *Gate) turn() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.asking || !g.asked.IsZero() && g.config.Clock().Sub(g.asked) < g.config.Refresh {
		return false
	}
	g.asking = true
	return true
}

func (g *Gate) ask(ctx context.Context) {
	// The answer is for everybody: a caller that leaves must not spoil it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), queryTimeout)
	defer cancel()
	var backlog inbox.Backlog
	err := errors.New("backpressure: the query did not end") // a panic in a hook of the database
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.asking, g.asked, g.err = false, g.config.Clock(), err
		if err == nil {
			g.saturated = g.reached(backlog)
		}
	}()
	if backlog, err = g.repo.Backlog(ctx, g.config.MaxUnfinished); err != nil {
		err = fmt.Errorf("backpressure: %w", err)
	}
}

func (g *Gate) reached(backlog inbox.Backlog) bool {
	return g.config.MaxUnfinished > 0 && backlog.Pending >= g.config.MaxUnfinished ||
		g.config.MaxAge > 0 && backlog.OldestDue >= g.config.MaxAge
}
