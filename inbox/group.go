package inbox

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
)

const (
	// groupsAtOnce is how many statements of gathered calls are under way.
	groupsAtOnce = 2
	// groupTimeout bounds a group, which no caller's context can.
	groupTimeout = 30 * time.Second
	// groupMoment is how long a call whose turn has come waits for those that
	// shared the last group.
	groupMoment = 50 * time.Microsecond
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
	shared  int // how many shared the last group with the one that ran it
}

// call is one call of Accept.
type call struct {
	rows     []row
	outcomes []Outcome
	err      error
	done     chan struct{} // closed when outcomes and err are set
	turn     chan struct{} // appoints this call to run a group
}

// accept stores rows together with those of others, or returns errAlone.
func (g *group) accept(ctx context.Context, rows []row) ([]Outcome, error) {
	c := &call{rows: rows, done: make(chan struct{}), turn: make(chan struct{}, 1)}
	g.mu.Lock()
	if g.running < groupsAtOnce {
		g.running++
		g.mu.Unlock()
		g.run(ctx, g.take(c))
		return c.outcomes, c.err
	}
	g.waiting = append(g.waiting, c)
	g.mu.Unlock()

	select {
	case <-c.done:
	case <-c.turn:
		g.run(ctx, g.take(c))
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
	case <-c.turn: // at the last moment
		g.next()
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
		g.mu.Lock()
		g.shared = len(calls) - 1
		g.mu.Unlock()
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

// take adds to a call whose turn has come the others that wait. Those who shared
// the last group are often about to call again: the first of them would be a
// group of its own.
func (g *group) take(c *call) []*call {
	began := time.Now()
	for {
		runtime.Gosched()
		g.mu.Lock()
		if len(g.waiting) >= g.shared || time.Since(began) >= groupMoment {
			defer g.mu.Unlock()
			return g.gather(c)
		}
		g.mu.Unlock()
	}
}

// gather moves calls that wait into the group of c, as many as one statement takes.
func (g *group) gather(c *call) []*call {
	n, entries, size := 0, 0, 0
	fits := func(c *call) bool {
		entries += len(c.rows)
		for i := range c.rows {
			size += len(c.rows[i].payload)
		}
		return entries <= g.repo.config.MaxBatch && size <= g.repo.config.MaxBatchBytes
	}
	for fits(c); n < len(g.waiting) && fits(g.waiting[n]); {
		n++
	}
	calls := append([]*call{c}, g.waiting[:n]...)
	g.waiting = slices.Delete(g.waiting, 0, n)
	return calls
}

// next gives the turn to the first call that waits.
func (g *group) next() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 {
		g.running--
		return
	}
	g.waiting[0].turn <- struct{}{}
	g.waiting = slices.Delete(g.waiting, 0, 1)
}
