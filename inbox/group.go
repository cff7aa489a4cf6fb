package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// groupsAtOnce is how many statements of gathered calls are under way.
	groupsAtOnce = 2
	// groupTimeout bounds a group, which no caller's context can.
	groupTimeout = 30 * time.Second
	// groupPatience is how long a call that is a group by itself keeps others from
	// their turn: it may wait for somebody's open transaction with one of its ids.
	// A group of several gives up by itself, see postgresBounded.
	groupPatience = 50 * time.Millisecond
)

// errAlone tells a call of Accept that its group could not be stored: it tries
// by itself, and finds out whether it was to blame.
var errAlone = errors.New("inbox: the group failed")

// group gathers the calls of Accept that arrive while others commit, into one
// statement and one commit. Each call returns only when its own rows are
// durable, and what is wrong with one touches no other.
type group struct {
	repo *Repository

	mu      sync.Mutex
	running int
	waiting []*call
}

// call is one call of Accept.
type call struct {
	rows     []row
	outcomes []Outcome
	err      error
	done     chan struct{} // closed when outcomes and err are set
	lead     chan []*call  // appoints this call to run a group that it is part of
}

// accept stores rows together with those of others, or returns errAlone.
func (g *group) accept(ctx context.Context, rows []row) ([]Outcome, error) {
	c := &call{rows: rows, done: make(chan struct{}), lead: make(chan []*call, 1)}
	g.mu.Lock()
	if g.running < groupsAtOnce {
		g.running++
		g.mu.Unlock()
		g.run(ctx, []*call{c})
		return c.outcomes, c.err
	}
	g.waiting = append(g.waiting, c)
	g.mu.Unlock()

	select {
	case <-c.done:
	case calls := <-c.lead:
		g.run(ctx, calls)
	case <-ctx.Done():
		return nil, g.leave(ctx, c)
	}
	return c.outcomes, c.err
}

// leave takes a call out whose context has ended. If its group is already under
// way, nobody knows whether the rows will be stored: a retry is a duplicate then.
func (g *group) leave(ctx context.Context, c *call) error {
	g.mu.Lock()
	if at := slices.Index(g.waiting, c); at >= 0 {
		g.waiting = slices.Delete(g.waiting, at, at+1)
	}
	g.mu.Unlock()
	select {
	case calls := <-c.lead: // appointed at the last moment: the others count on it
		go g.run(context.WithoutCancel(ctx), calls)
	default:
	}
	return fmt.Errorf("inbox: accept: %w", ctx.Err())
}

// run stores the rows of calls, tells each what became of them, and appoints
// whoever runs the next group.
func (g *group) run(ctx context.Context, calls []*call) {
	err := errAlone // should the store panic
	var outcomes []Outcome
	next := sync.OnceFunc(g.next)
	if len(calls) == 1 {
		defer time.AfterFunc(groupPatience, next).Stop()
	}
	defer func() {
		for _, c := range calls {
			if c.err = err; err == nil {
				c.outcomes, outcomes = outcomes[:len(c.rows):len(c.rows)], outcomes[len(c.rows):]
			}
			close(c.done)
		}
		next()
	}()
	rows := calls[0].rows
	if len(calls) > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), groupTimeout)
		defer cancel()
		rows = nil
		for _, c := range calls {
			rows = append(rows, c.rows...)
		}
	}
	outcomes, err = g.repo.accept(ctx, rows, len(calls) > 1)
	switch {
	case err == nil:
	case len(calls) > 1 && !connectionLost(err), g.repo.dialect.retryCode(err) != "":
		err = errAlone
	default:
		err = g.repo.wrap("accept", err)
	}
}

// next hands the calls that wait, as many as one statement takes, to the first
// of them.
func (g *group) next() {
	g.mu.Lock()
	defer g.mu.Unlock()
	n, entries, size := 0, 0, 0
	for _, c := range g.waiting {
		entries += len(c.rows)
		for i := range c.rows {
			size += len(c.rows[i].payload)
		}
		if n > 0 && (entries > g.repo.config.MaxBatch || size > g.repo.config.MaxBatchBytes) {
			break
		}
		n++
	}
	if n == 0 {
		g.running--
		return
	}
	calls := slices.Clone(g.waiting[:n])
	g.waiting = slices.Delete(g.waiting, 0, n)
	calls[0].lead <- calls
}
