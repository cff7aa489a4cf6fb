package inbox

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	sweepBatch       = 500
	sweepBatchSQLite = 100 // acceptors get in between
	sweepBatchLeast  = 10
	// sweepPass is how often a pass begins at the first message again: one that
	// was pending when its neighbours were removed is found then.
	sweepPass = time.Hour
	// sweepPassShare spaces such passes by their own cost.
	sweepPassShare = 20
	sweepPauseMost = 250 * time.Millisecond
)

// SweepResult says what a sweep did.
type SweepResult struct {
	// Deleted is how many messages were deleted; Pending and Dead of them were
	// in that status.
	Deleted int64
	Pending int64
	Dead    int64
	// Payloads is how many payloads were removed from messages that stay.
	Payloads int64
	// Examined is how many rows were looked at.
	Examined int64
	// Busy is true when another sweeper was at work; this one left it to that.
	Busy bool
}

// sweeper is what a repository remembers of its sweeps.
type sweeper struct {
	mu     sync.Mutex // held by the one that sweeps
	rows   sweepMark
	strips sweepMark
}

// sweepMark is how far the sweep has come: what is behind it was examined when
// it was old enough.
type sweepMark struct {
	id      int64
	fresh   bool          // began at the first message, and has not come to the end
	began   time.Time     // when a pass last began at the first message
	took    time.Duration // how long that pass worked
	batch   int           // smaller after a statement timeout
	working time.Duration
}

// Sweep removes what is past Config.Retention: messages, or only their
// payloads. It works in small transactions, one sweeper at a time in the whole
// fleet, and from where this repository's last sweep has ended; once an hour it
// begins with the first message again. Run does it by itself.
//
// When another sweeper is at work, Sweep leaves it to that and returns with
// Busy. After an error, what the result counts is removed.
func (r *Repository) Sweep(ctx context.Context) (SweepResult, error) {
	result, err := r.sweep(ctx)
	if err != nil {
		return result, r.wrap("sweep", err)
	}
	r.audit(ctx, "sweep", result.Deleted+result.Payloads, Info{})
	return result, nil
}

// sweep is Sweep without the operator.
func (r *Repository) sweep(ctx context.Context) (result SweepResult, err error) {
	if !r.sweeper.mu.TryLock() {
		return SweepResult{Busy: true}, nil
	}
	defer r.sweeper.mu.Unlock()
	defer func() {
		for _, swept := range []struct {
			what  string
			count int64
		}{{"messages", result.Deleted}, {"payloads", result.Payloads}} {
			if swept.count > 0 {
				r.observe(ctx, r.config.Logger, Observation{Kind: SawSwept, Action: swept.what, Count: swept.count})
			}
		}
	}()
	retention := r.config.Retention
	if retention.DedupeWindow > 0 {
		if err := r.pass(ctx, &r.sweeper.rows, &result, r.sweepRows); err != nil || result.Busy {
			return result, err
		}
	}
	if retention.PayloadRetention > 0 && (retention.DedupeWindow < 0 || retention.PayloadRetention < retention.DedupeWindow) {
		err = r.pass(ctx, &r.sweeper.strips, &result, r.sweepStrips)
	}
	return result, err
}

// pass runs batches until one lies wholly inside the retention.
func (r *Repository) pass(ctx context.Context, m *sweepMark, result *SweepResult, remove removal) error {
	m.start(r.sweepBatchMost())
	for tries := 1; ; {
		began := time.Now()
		step, err := r.sweepStep(ctx, m.id, m.batch, remove)
		worked := time.Since(began)
		m.working += worked
		switch {
		case err != nil && sqlState(err) == codeQueryCanceled && ctx.Err() == nil && m.batch > sweepBatchLeast:
			m.batch = max(m.batch/2, sweepBatchLeast) // statement_timeout
			continue
		case r.dialect.retryCode(err) != "" && tries < verbTries:
			if err := sleep(ctx, conflictBackoff.Delay(tries)); err != nil {
				return err
			}
			tries++
			continue
		case err != nil:
			return err
		}
		tries = 1
		result.add(step)
		if step.Busy {
			return nil
		}
		m.id = max(m.id, step.mark)
		if step.last {
			m.end()
			return nil
		}
		m.batch = min(m.batch+m.batch/8+1, r.sweepBatchMost())
		if err := sleep(ctx, min(worked, sweepPauseMost)); err != nil {
			return err
		}
	}
}

func (r *Repository) sweepBatchMost() int {
	if r.dialect == sqliteDialect {
		return sweepBatchSQLite
	}
	return sweepBatch
}

// start goes on at the mark, or from the first message when that is due.
func (m *sweepMark) start(batch int) {
	setDefault(&m.batch, batch)
	if m.fresh || !m.began.IsZero() && time.Since(m.began) < max(sweepPass, sweepPassShare*m.took) {
		return
	}
	m.id, m.fresh, m.began, m.working = 0, true, time.Now(), 0
}

func (m *sweepMark) end() {
	if m.fresh {
		m.fresh, m.took = false, m.working
	}
}

func (s *SweepResult) add(step sweepStep) {
	s.Deleted += step.Deleted
	s.Pending += step.Pending
	s.Dead += step.Dead
	s.Payloads += step.Payloads
	s.Examined += step.Examined
	s.Busy = s.Busy || step.Busy
}

// sweepLoop sweeps every SweepInterval until ctx ends, each time a little sooner
// or later than the others of the fleet. The first time is half an interval after
// the start: after an outage, what brokers replay should find what it repeats.
func (p *Processor) sweepLoop(ctx context.Context) {
	if p.config.SweepInterval < 0 {
		return
	}
	failing := false
	for wait := p.config.SweepInterval / 2; ; wait = p.config.SweepInterval {
		jitter := wait / 5
		if sleep(ctx, wait-jitter+rand.N(2*jitter+1)) != nil {
			return
		}
		result, err := p.repo.sweep(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failing:
			failing = true
			p.log.WarnContext(ctx, "inbox: the sweep failed; it is tried again", "interval", p.config.SweepInterval, "error", errorText(err))
		case err == nil && failing:
			failing = false
			p.log.InfoContext(ctx, "inbox: the sweep works again", "deleted", result.Deleted)
		}
	}
}
