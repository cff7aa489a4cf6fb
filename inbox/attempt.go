package inbox

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

var (
	errHandlerTimeout = errors.New("inbox: the handler exceeded its timeout")
	errShutdown       = errors.New("inbox: the processor is stopping")
	errGoexit         = errors.New("inbox: the handler called runtime.Goexit")
	errLeaked         = errors.New("inbox: the handler ignored the end of its context and was abandoned")
)

// panicError is what a handler's panic becomes.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// attempt is one handler run and what it did to the transaction.
type attempt struct {
	err        error // nil: the handler returned nil and left the transaction usable
	statements int
	undone     bool // the transaction was lost
	own        bool // by the handler's own doing
	leaked     bool // the handler is still running
	stopped    bool // cancelled because the processor stops
	timedOut   bool

	began    time.Time
	duration time.Duration
	ctx      context.Context // the handler's, for the observer
	later    []Outcome       // what the handler had stored and said Committed of
}

// run decodes c and calls its handler once. ctx ends when the processor stops;
// tx is the transaction the handler works in.
func (p *Processor) run(ctx context.Context, tx querier, c *Claimed) attempt {
	return p.call(p.repo.started(ctx, []Info{c.Info}), tx, c, p.policy(c.Name).Timeout, func(ctx context.Context) error {
		return p.dispatch(ctx, c)
	})
}

// runBatchHandler hands messages of one name to their batch handler in one call.
func (p *Processor) runBatchHandler(ctx context.Context, tx querier, claimed []*Claimed, messages []any) attempt {
	infos := make([]Info, len(claimed))
	for i, c := range claimed {
		infos[i] = c.Info
	}
	name := claimed[0].Name
	return p.call(p.repo.started(ctx, infos), tx, claimed[0], p.policy(name).Timeout, func(ctx context.Context) error {
		ctx = context.WithValue(ctx, batchKey, infos)
		return p.routes[name].many(ctx, messages)
	})
}

// runHook calls the OnDead hook under the same conditions as a handler.
func (p *Processor) runHook(ctx context.Context, tx querier, r *result) attempt {
	return p.call(ctx, tx, r.claimed, p.policy(r.claimed.Name).Timeout, func(ctx context.Context) error {
		return p.config.OnDead(ctx, r.claimed.Info, r.attempt.err)
	})
}

// call runs fn in another goroutine, with a guarded handle on tx in its context.
func (p *Processor) call(ctx context.Context, tx querier, c *Claimed, timeout time.Duration, fn func(context.Context) error) attempt {
	began := time.Now()
	timed, cancel := withTimeout(ctx, timeout)
	defer cancel()
	handle := &handle{db: p.repo.db}
	handlerCtx := context.WithValue(timed, ambientKey, &ambient{handle: handle, info: c.Info})
	handle.guard = newGuard(p.repo.database, tx, handlerCtx)

	done := make(chan error, 1)
	release := start(handlerCtx, func() {
		err := errGoexit
		defer func() {
			if r := recover(); r != nil {
				err = &panicError{r, debug.Stack()}
			}
			done <- err
		}()
		err = probed(fn(handlerCtx))
	})

	a := attempt{ctx: ctx, began: began}
	select {
	case a.err = <-done:
	case <-handlerCtx.Done():
		a.err, a.leaked = p.awaitCancelled(done)
	}
	a.duration = time.Since(began)
	release(!a.leaked && !errors.Is(a.err, errGoexit))
	cause := context.Cause(handlerCtx)
	a.stopped = errors.Is(cause, errShutdown)
	// Drivers watch the deadline themselves, and may be ahead of the context.
	a.timedOut = errors.Is(cause, errHandlerTimeout) ||
		cause == nil && a.err != nil && timeout > 0 && a.duration >= timeout
	if !a.leaked {
		handle.guard.returned(p.config.HandlerGrace, cancel)
	}
	cancel()
	p.inspect(&a, handle.guard)
	handle.close()
	return a
}

// probed walks an error once where a panic of its methods is caught: that of a
// typed nil, say. Later on it would take the processor with it.
func probed(err error) error {
	_ = errors.Is(err, errProbe)
	_ = errors.As(err, new(*panicError))
	return err
}

var errProbe = errors.New("inbox: no error is this one")

// withTimeout is without one where timeout is negative.
func withTimeout(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout < 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, timeout, errHandlerTimeout)
}

// awaitCancelled gives a cancelled handler the grace to return.
func (p *Processor) awaitCancelled(done <-chan error) (err error, leaked bool) {
	timer := time.NewTimer(p.config.HandlerGrace)
	defer timer.Stop()
	select {
	case err := <-done:
		return err, false
	case <-timer.C:
		p.leaked.Add(1)
		return errLeaked, true
	}
}

// inspect shuts the guard and adds what the handler did not say.
func (p *Processor) inspect(a *attempt, guard *guard) {
	open := guard.close(p.config.HandlerGrace)
	a.statements, a.undone, a.own = guard.used()
	a.later = guard.committed()
	if a.err == nil && a.timedOut {
		// It came back in time for its grace and says it is done; what it
		// wrote is complete unless a statement failed.
		a.timedOut = false
	}
	if !a.leaked {
		a.err = guard.verdict(a.err, open)
	}
	if a.timedOut && !errors.Is(a.err, errHandlerTimeout) {
		a.err = fmt.Errorf("%w: %w", errHandlerTimeout, a.err)
	}
}

// dispatch decodes the message and sends it to the mediator.
func (p *Processor) dispatch(ctx context.Context, c *Claimed) error {
	message, err := p.decode(c)
	if err != nil {
		return err
	}
	route, ok := p.routes[c.Name]
	if !ok {
		return fmt.Errorf("%w: %q", ErrUnhandled, c.Name)
	}
	return route.one(ctx, message)
}

// decode is permanent in its failure, panics of a codec included.
func (p *Processor) decode(c *Claimed) (message any, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = Permanent(&panicError{r, debug.Stack()})
		}
	}()
	if c.damaged != nil {
		return nil, Permanent(fmt.Errorf("inbox: the stored row is damaged: %w", c.damaged))
	}
	message, err = p.repo.names.Decode(c.Name, c.Payload)
	return message, Permanent(err)
}
