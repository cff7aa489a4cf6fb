package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// fate is what becomes of a message after a failed attempt.
type fate uint8

const (
	retried     fate = iota + 1 // an attempt, comes back later
	died                        // an attempt, the last one
	postponed                   // not an attempt
	interrupted                 // not an attempt, counted apart and bounded
	released                    // nothing is recorded: claimable at once
)

// judge decides about a failed attempt.
func (p *Processor) judge(c *Claimed, a *attempt) (fate, failure) {
	policy := p.policy(c.Name)
	f := failure{Claimed: c, attempts: c.attempts, interruptions: c.interruptions, duration: a.duration}
	if a.stopped {
		return released, f
	}
	var postpone *postponeError
	if errors.As(a.err, &postpone) && !errors.As(a.err, new(*refusedError)) {
		f.delay = postpone.delay
		return postponed, f
	}
	if !a.timedOut && !a.leaked && !IsPermanent(a.err) && p.repo.dialect.handlerInterrupted(a.err) {
		return p.interrupt(f, a.err)
	}
	f.attempts++
	f.err = p.describe(a.err)
	if IsPermanent(a.err) || f.attempts >= policy.MaxAttempts {
		return p.die(f)
	}
	f.delay = policy.Backoff.Delay(f.attempts)
	var after *retryAfterError
	if errors.As(a.err, &after) {
		f.delay = after.delay
	}
	return retried, f
}

// interrupt counts a run that was broken off by the database. After very many
// the message is dead, so that one which always breaks its connection ends.
func (p *Processor) interrupt(f failure, err error) (fate, failure) {
	f.interruptions++
	if f.interruptions >= p.config.MaxInterruptions {
		f.err = p.describe(fmt.Errorf("inbox: gave up after %d interrupted runs: %w", f.interruptions, err))
		return p.die(f)
	}
	f.delay = interruptionBackoff.Delay(f.interruptions)
	return interrupted, f
}

// die is the end of a message. It stays in the way of its ordering key, unless
// its policy says otherwise.
func (p *Processor) die(f failure) (fate, failure) {
	f.dead, f.leaves = true, p.policy(f.Name).OnDead == Continue
	return died, f
}

var interruptionBackoff = Backoff{Base: 50 * time.Millisecond, Max: time.Minute}

// describe returns the text that is kept, and it is never empty.
func (p *Processor) describe(err error) string {
	text := errorText(err)
	if text == "" {
		return fmt.Sprintf("%T without a text", err)
	}
	return text
}

// report tells what became of a message, after the commit that made it true.
func (p *Processor) report(ctx context.Context, r *result) {
	if r.fate == released {
		return
	}
	a := &r.attempt
	if a.ctx != nil {
		ctx = a.ctx
	}
	o := Observation{Kind: SawProcessed, Message: r.claimed.Info, Began: a.began, Duration: a.duration}
	if r.fate != 0 {
		o.Kind, o.Err, o.Delay = r.fate.observed(), a.err, r.failure.delay
	} else {
		p.repo.committed(ctx, a.later)
	}
	p.count(r.claimed.Name, o.Kind)
	p.repo.observe(ctx, p.log, o)
	if r.fate != 0 && r.fate != died {
		p.wakeAfter(r.failure.delay)
	}
	p.resume(r.unparked)
}

func (f fate) observed() ObservationKind {
	switch f {
	case retried:
		return SawFailed
	case died:
		return SawDead
	case interrupted:
		return SawInterrupted
	}
	return SawPostponed
}
