package inbox

import (
	"context"
	"errors"
	"slices"
	"time"
)

// conflictTries is how often a step begins again by itself.
const conflictTries = 10

// progress says what a step did.
type progress struct {
	claimed   int
	processed int
}

// batchSize shrinks quickly after a failed batch and grows slowly again.
type batchSize struct {
	max, lost int
	full      bool // the last claim was: there are probably more
}

func (b *batchSize) limit() int { return b.max - b.lost }
func (b *batchSize) shrink()    { b.lost = b.max - max(b.limit()/2, 1) }
func (b *batchSize) grow()      { b.lost -= min(b.lost, 1+b.limit()/8) }

// conflictBackoff is the pause after a claim that the database wants again.
var conflictBackoff = Backoff{Base: 10 * time.Millisecond, Max: 500 * time.Millisecond}

// step is try, and again a few times where the database wants that: under strict
// isolation a claim may lose against a neighbour's, which is no outage.
func (p *Processor) step(s session, size *batchSize) (done progress, err error) {
	for n := 1; ; n++ {
		progress, err := p.try(s, size)
		done.claimed += progress.claimed
		done.processed += progress.processed
		if p.repo.dialect.retryCode(err) == "" || n == conflictTries || sleep(s.stop, conflictBackoff.Delay(n)) != nil {
			return done, err
		}
		p.marks.reset()
	}
}

// try claims a batch and brings its messages to an end.
func (p *Processor) try(s session, size *batchSize) (progress, error) {
	if err := p.unparkMissed(s.stop); err != nil {
		return progress{}, err
	}
	names, release := p.limits.acquire(p.rotated())
	defer release(nil)
	if len(names) == 0 {
		return progress{}, nil
	}
	if !size.full {
		if due, err := p.repo.store.anyDue(s.stop, names); err != nil || !due {
			return progress{}, err
		}
	}
	size.full = false
	if p.isCareful() {
		return p.tryAlone(s, names)
	}
	var b batch
	// A stop keeps the transaction from beginning; what has begun ends with
	// the work.
	err := p.repo.inTransaction(s.stop, txOptions{isolation: p.config.Isolation}, func(_ context.Context, tx querier) error {
		claimed, err := p.claim(s.work, tx, names, size.limit())
		if err != nil || len(claimed) == 0 {
			return err
		}
		if slices.ContainsFunc(claimed, func(c *Claimed) bool { return c.starts > 0 }) {
			return errSuspect
		}
		if b.claimed, b.held, err = p.repo.inOrder(s.work, tx, claimed); err != nil {
			return err
		}
		if release(b.claimed); len(b.claimed) == 0 {
			return errHeld
		}
		if size.full = len(claimed) == size.limit(); size.full && !oneKey(b.claimed) {
			signal(p.wake) // there may be more for an idle worker
		}
		return p.runBatch(s, tx, &b)
	})
	if errors.Is(err, errSuspect) {
		p.marks.reset()
		return p.tryAlone(s, names)
	}
	done := progress{claimed: len(b.claimed)}
	if held := p.inTheWay(&b); len(held) > 0 && s.stop.Err() == nil {
		parked, err := p.park(s.stop, held)
		if err != nil && len(b.claimed) == 0 {
			return done, err
		}
		done.claimed += parked
	}
	if len(b.claimed) == 0 {
		if errors.Is(err, errHeld) {
			err = nil
		}
		return done, err
	}
	if len(b.rest) > 0 || err != nil {
		p.marks.reset() // rows were given back
	}
	if err == nil {
		size.grow()
		done.processed = len(b.done)
		p.afterBatch(s, &b)
		return done, nil
	}
	size.shrink()
	if s.work.Err() != nil {
		return done, nil // stopped in the middle: rolled back, claimable
	}
	n, err := p.fallBack(s, &b, err)
	done.processed = n
	return done, err
}

// rotated returns the served names, each time another one first.
func (p *Processor) rotated() []string {
	n := int(p.turn.Add(1) % uint64(len(p.names)))
	return append(append(make([]string, 0, len(p.names)), p.names[n:]...), p.names[:n]...)
}

// claim locks due rows behind the marks.
func (p *Processor) claim(ctx context.Context, tx querier, names []string, limit int) ([]*Claimed, error) {
	began := time.Now()
	view, epoch, rescan := p.marks.start(names, began)
	claimed, err := p.repo.store.claim(ctx, tx, view, nil, limit)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	if p.repo.config.Observer != nil {
		p.repo.observe(ctx, p.log, Observation{Kind: SawClaimed, Began: began, Duration: now.Sub(began), Count: int64(len(claimed))})
	}
	p.marks.advance(epoch, rescan, len(claimed) == limit, claimed, now, now.Sub(began))
	if len(claimed) == 0 {
		if wait, ok := p.marks.idle(now); ok {
			time.AfterFunc(wait, func() { signal(p.wake) })
		}
	}
	return claimed, nil
}

// wakeAfter looks again when a retry of ours is due, if that is before the
// next poll.
func (p *Processor) wakeAfter(delay time.Duration) {
	if delay < p.config.PollInterval {
		time.AfterFunc(delay+time.Millisecond, func() {
			p.marks.reset()
			signal(p.wake)
		})
	}
}

// fallBack runs the messages of a failed batch one by one, each in a transaction
// of its own, so that only the guilty one is charged.
func (p *Processor) fallBack(s session, b *batch, cause error) (processed int, err error) {
	switch {
	case errors.Is(cause, errNotClaimed):
		settled, err := p.settleChanged(s, b)
		if settled || err != nil {
			return len(b.done), err
		}
	case len(b.ran) == 0:
		return 0, cause
	}
	p.evict(s.work, b.claimed[0], cause)
	if b.guilty != nil {
		if err := p.record(s.work, b.guilty); err != nil {
			return 0, err
		}
	}
	for _, c := range b.ran {
		if s.stop.Err() != nil || b.guilty != nil && c == b.guilty.claimed {
			continue
		}
		ok, err := p.single(s, c.ID, 0)
		p.polls.note(err)
		if err != nil {
			return processed, err
		}
		if ok {
			processed++
		}
	}
	return processed, nil
}
