package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// errBatchFailed ends a batch that has to be rolled back and run one by one.
var errBatchFailed = errors.New("inbox: a message of the batch failed")

// batchSavepoint shows, on SQLite, whether the transaction is still the one
// that claimed: PostgreSQL has transaction ids for that.
const batchSavepoint = ownSavepoint + "batch"

// batch is a claim and how far it got.
type batch struct {
	claimed []*Claimed
	ran     []*Claimed // handlers that were started
	rest    []*Claimed // given back unstarted
	held    []*Claimed // not claimed: earlier ones of their keys are unfinished
	done    []result   // handlers that returned nil
	failed  []result   // failed before they sent a statement: nothing to undo
	guilty  *result    // known to be guilty: not to be run again

	broken   map[string]bool // ordering keys of failed messages
	unparked unparked
}

// follows reports that an earlier message of the key has failed in this batch.
func (b *batch) follows(c *Claimed) bool { return c.OrderingKey != "" && b.broken[c.OrderingKey] }

// fail keeps a failure that is recorded with the batch.
func (b *batch) fail(r result) {
	b.failed = append(b.failed, r)
	if key := r.claimed.OrderingKey; key != "" {
		if b.broken == nil {
			b.broken = map[string]bool{}
		}
		b.broken[key] = true
	}
}

// finished returns the messages whose handlers returned nil.
func (b *batch) finished() []*Claimed {
	claimed := make([]*Claimed, len(b.done))
	for i := range b.done {
		claimed[i] = b.done[i].claimed
	}
	return claimed
}

// result is a message, its attempt and its fate.
type result struct {
	claimed *Claimed
	attempt attempt
	fate    fate
	failure failure
	noHook  bool // OnDead has cost the transaction once

	unparked unparked
}

// runBatch runs the handlers one after another in one transaction, without
// savepoints, and settles their messages with one statement.
func (p *Processor) runBatch(s session, tx querier, b *batch) error {
	if p.repo.dialect == sqliteDialect {
		if _, err := tx.ExecContext(s.work, "SAVEPOINT "+batchSavepoint); err != nil {
			return err
		}
	}
	began := time.Now()
	calls := p.calls(b.claimed)
	for i, call := range calls {
		if i > 0 && p.endEarly(s, began) {
			b.rest = append(b.rest, slices.Concat(calls[i:]...)...)
			break
		}
		var after []*Claimed
		call = slices.DeleteFunc(call, func(c *Claimed) bool {
			if b.follows(c) {
				after = append(after, c)
			}
			return b.follows(c)
		})
		if b.rest = append(b.rest, after...); len(call) == 0 {
			continue
		}
		b.ran = append(b.ran, call...)
		if err := p.runInBatch(s, tx, b, call); err != nil {
			b.rest = append(b.rest, slices.Concat(calls[i+1:]...)...)
			return err
		}
	}
	return p.settleBatch(s.work, tx, b)
}

// endEarly reports that the batch should give the rest back: the processor
// stops, the batch takes long, or an accept waits for the one writer of SQLite.
func (p *Processor) endEarly(s session, began time.Time) bool {
	return s.stop.Err() != nil ||
		time.Since(began) >= p.config.BatchDuration ||
		p.repo.dialect == sqliteDialect && p.repo.accepting.Load() > 0
}

// runInBatch runs one handler call. An error means that the batch must be rolled back.
func (p *Processor) runInBatch(s session, tx querier, b *batch, call []*Claimed) error {
	if len(call) > 1 {
		return p.runMany(s, tx, b, call)
	}
	c := call[0]
	r := result{claimed: c, attempt: p.run(s.work, tx, c)}
	a := &r.attempt
	if a.err == nil {
		b.done = append(b.done, r)
		return nil
	}
	r.fate, r.failure = p.judge(c, a)
	if a.leaked || a.timedOut {
		b.guilty = &r // another run would take as long again
		return fmt.Errorf("%w: %w", errBatchFailed, ErrTransactionLost)
	}
	if p.nothingToUndo(&r) {
		b.fail(r)
		return nil
	}
	if a.undone {
		return fmt.Errorf("%w: %w", errBatchFailed, ErrTransactionLost)
	}
	return errBatchFailed
}

// nothingToUndo reports a failure that can be recorded with the batch.
func (p *Processor) nothingToUndo(r *result) bool {
	return r.attempt.statements == 0 && !r.attempt.undone &&
		r.fate != released && (r.fate != died || p.config.OnDead == nil)
}

// runMany hands several messages to their batch handler. Those that do not
// decode are left out; if the handler fails, nobody knows for whom.
func (p *Processor) runMany(s session, tx querier, b *batch, call []*Claimed) error {
	var claimed []*Claimed
	var messages []any
	for _, c := range call {
		if b.follows(c) {
			b.rest = append(b.rest, c)
			continue
		}
		message, err := p.decode(c)
		if err == nil {
			claimed, messages = append(claimed, c), append(messages, message)
			continue
		}
		r := result{claimed: c, attempt: attempt{err: err}}
		if r.fate, r.failure = p.judge(c, &r.attempt); !p.nothingToUndo(&r) {
			return errBatchFailed
		}
		b.fail(r)
	}
	if len(claimed) == 0 {
		return nil
	}
	a := p.runBatchHandler(s.work, tx, claimed, messages)
	switch {
	case a.leaked || a.undone:
		return fmt.Errorf("%w: %w", errBatchFailed, ErrTransactionLost)
	case a.err != nil:
		return errBatchFailed
	}
	for _, c := range claimed {
		b.done = append(b.done, result{claimed: c, attempt: a})
		a.later = nil // once
	}
	return nil
}

func (p *Processor) settleBatch(ctx context.Context, tx querier, b *batch) (err error) {
	if p.repo.dialect == sqliteDialect {
		if _, err := tx.ExecContext(ctx, "RELEASE SAVEPOINT "+batchSavepoint); err != nil {
			return fmt.Errorf("%w: the transaction ended early: %w", errBatchFailed, err)
		}
	}
	failures := make([]failure, len(b.failed))
	for i := range b.failed {
		failures[i] = b.failed[i].failure
	}
	b.unparked, err = p.settle(ctx, tx, b.finished(), failures)
	return err
}

// afterBatch reports what a committed batch decided.
func (p *Processor) afterBatch(s session, b *batch) {
	for i := range b.done {
		p.report(s.work, &b.done[i])
	}
	for i := range b.failed {
		p.report(s.work, &b.failed[i])
	}
	p.resume(b.unparked)
}

// settleChanged deals with a batch whose transaction was not the one that
// claimed any more when it was settled: a handler has ended it behind the
// guard's back. If that first transaction was committed, the effects of all that
// ran are in; they are marked processed, or a retry would double them.
func (p *Processor) settleChanged(s session, b *batch) (settled bool, err error) {
	status, err := p.transactionStatus(s.work, b.claimed[0])
	if err != nil || status != "committed" {
		return false, err
	}
	p.log.ErrorContext(s.work, "inbox: a handler committed the transaction of its batch; its messages are marked processed",
		"remedy", "handlers must write through inbox.DB only", "messages", len(b.done))
	for i := range b.done {
		if err := p.settleCommitted(s.work, &b.done[i]); err != nil {
			return true, err
		}
	}
	return true, nil
}

// settleCommitted marks a message processed whose effect is known to be in.
func (p *Processor) settleCommitted(ctx context.Context, r *result) error {
	found := false
	err := p.repo.inTransaction(ctx, txOptions{}, func(ctx context.Context, tx querier) error {
		again, err := p.repo.store.claimOne(ctx, tx, r.claimed.ID, 0)
		if err != nil || again == nil || again.attempts != r.claimed.attempts {
			return err
		}
		found = true
		r.unparked, err = p.settle(ctx, tx, []*Claimed{again}, nil)
		return err
	})
	if err == nil && found {
		p.report(ctx, r)
	}
	return err
}

// transactionStatus asks what became of the transaction that claimed c:
// "committed", "aborted", "in progress", or "" where nobody knows.
func (p *Processor) transactionStatus(ctx context.Context, c *Claimed) (status string, err error) {
	if c.transaction == "" {
		return "", nil
	}
	err = p.repo.scan(ctx, p.repo.db.DB, &status, postgresStatus, c.transaction)
	return status, err
}
