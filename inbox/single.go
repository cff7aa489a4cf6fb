package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

const (
	messageSavepoint = ownSavepoint + "message"
	hookSavepoint    = ownSavepoint + "hook"
	// recordWait is how long the record of a failure waits for the lock of an
	// old backend that has not noticed yet that its client is gone.
	recordWait = 5 * time.Second
)

// errTampered says that a handler ended the transaction it worked in.
var errTampered = errors.New("inbox: the handler ended the transaction of the inbox")

// single runs one message in a transaction of its own. It reports whether the
// message was processed. An error is the database's, never the handler's.
//
// starts is how often a cautious processor has started it, 0 for the others.
func (p *Processor) single(s session, id int64, starts int) (processed bool, err error) {
	var c *Claimed
	var r result
	err = p.repo.inTransaction(s.work, txOptions{isolation: p.config.Isolation}, func(ctx context.Context, tx querier) error {
		var err error
		if c, err = p.repo.store.claimOne(ctx, tx, id, starts); err != nil || c == nil {
			return err
		}
		if ok, err := p.repo.mayStart(ctx, tx, c); err != nil || !ok {
			c = nil
			return err
		}
		r, err = p.processOne(s.work, tx, c)
		return err
	})
	switch {
	case c == nil:
		return false, err // gone, held up, or somebody else has it, or the database is away
	case err == nil:
		p.report(s.work, &r)
		return r.fate == 0, nil
	}
	p.evict(s.work, c, err)
	return false, p.salvage(s.work, c, &r, err)
}

// evict ends the session that still holds the locks of the transaction which
// claimed c, if its connection was lost: the server may not notice while a
// statement runs, and not every driver cancels it.
func (p *Processor) evict(ctx context.Context, c *Claimed, cause error) {
	pg, ok := p.repo.store.(*postgres)
	if !ok || c.transaction == "" || !errors.Is(cause, ErrTransactionLost) && !connectionLost(cause) {
		return
	}
	ctx, cancel := detached(ctx)
	defer cancel()
	if err := pg.evict(ctx, c.transaction); err != nil {
		p.log.WarnContext(ctx, "inbox: the session of a lost connection may hold its locks for a while", "error", errorText(err))
	}
}

// processOne runs a claimed message inside a savepoint and records its fate in
// tx. After an error nothing may be committed.
func (p *Processor) processOne(ctx context.Context, tx querier, c *Claimed) (r result, err error) {
	r.claimed = c
	if _, err := tx.ExecContext(ctx, "SAVEPOINT "+messageSavepoint); err != nil {
		return r, fmt.Errorf("savepoint: %w", err)
	}
	r.attempt = p.run(ctx, tx, c)
	if r.attempt.leaked {
		return r, ErrTransactionLost
	}
	// From here on the context of the caller or of a deadline does not count.
	ctx, cancel := detached(ctx)
	defer cancel()
	if r.attempt.err == nil {
		_, err := tx.ExecContext(ctx, "RELEASE SAVEPOINT "+messageSavepoint)
		if err == nil {
			r.unparked, err = p.settle(ctx, tx, []*Claimed{c}, nil)
			return r, p.settled(err)
		}
		if tampered := p.tampered(err, &r.attempt); tampered != nil {
			return r, tampered
		}
		r.attempt.err = fmt.Errorf("inbox: the handler left the transaction unusable: %w", err)
	}
	if err := rollbackTo(ctx, tx, messageSavepoint); err != nil {
		if tampered := p.tampered(err, &r.attempt); tampered != nil {
			return r, tampered
		}
		return r, fmt.Errorf("%w: %w", ErrTransactionLost, err)
	}
	r.fate, r.failure = p.judge(c, &r.attempt)
	if r.fate == released {
		return r, nil
	}
	if err := p.callOnDead(ctx, tx, &r); err != nil {
		r.noHook = true
		return r, err
	}
	ctx, done := detached(ctx) // the hook may have used the time up
	defer done()
	r.unparked, err = p.settle(ctx, tx, nil, []failure{r.failure})
	return r, p.settled(err)
}

// settled turns the loss of a claim into what it means after one message.
func (p *Processor) settled(err error) error {
	if errors.Is(err, errNotClaimed) {
		return fmt.Errorf("%w: %w", errTampered, err)
	}
	return err
}

// tampered recognises that the savepoint is gone although the connection is
// not: somebody ended the transaction. What SQLite itself rolled back, the guard
// knows of, unless the handler did not use its handle.
func (p *Processor) tampered(err error, a *attempt) error {
	switch code := sqlState(err); {
	case code == codeNoSavepoint, code == codeNoTransaction, errors.Is(err, sql.ErrTxDone),
		p.repo.dialect == sqliteDialect && sqliteCode(err) == sqliteError && !a.undone && !brokeItself(a.err):
		return fmt.Errorf("%w: %w", errTampered, err)
	}
	return nil
}

// salvage decides about a message whose transaction was lost after its handler
// ran, and records it in a fresh one. cause is why it was lost.
func (p *Processor) salvage(ctx context.Context, c *Claimed, r *result, cause error) error {
	a := &r.attempt
	switch {
	case a.stopped:
		return nil
	case errors.Is(cause, errTampered):
		if errors.Is(cause, sql.ErrTxDone) && ctx.Err() != nil {
			return nil // the caller's context ended, and with it his transaction
		}
		a.err = Permanent(cause)
		r.fate, r.failure = p.judge(c, a)
	case isCommitError(cause) && p.refusedAtCommit(cause) && r.fate != 0:
		r.noHook = true // what the handler wrote was undone before
	case isCommitError(cause) && p.refusedAtCommit(cause):
		// A deferred constraint, for example: the message's own failure.
		a.err = fmt.Errorf("inbox: the commit was refused: %w", cause)
		r.fate, r.failure = p.judge(c, a)
	case isCommitError(cause):
		// Nobody knows whether it is in. The record is a compare-and-set under
		// the lock of the queue row: it finds nothing if the commit was applied.
		r.fate, r.failure = p.interrupt(p.unchanged(c), cause)
	case a.err != nil && (a.timedOut || a.leaked || a.own || brokeItself(a.err) || !connectionLost(cause)):
		r.fate, r.failure = p.judge(c, a)
	case a.err == nil && !connectionLost(cause):
		a.err = cause
		r.fate, r.failure = p.judge(c, a)
	default:
		a.err = cause
		r.fate, r.failure = p.interrupt(p.unchanged(c), cause)
	}
	return p.record(ctx, r)
}

func (p *Processor) unchanged(c *Claimed) failure {
	return failure{Claimed: c, attempts: c.attempts, interruptions: c.interruptions}
}

// refusedAtCommit reports that the server itself said no, so that nothing is in.
func (p *Processor) refusedAtCommit(err error) bool {
	if p.repo.dialect == sqliteDialect {
		return sqliteCode(err) == sqliteConstraint // else it is busy, or the disk is full
	}
	return sqlState(err) != "" && !connectionLost(err)
}

// brokeItself reports that the handler's own context ended in the middle of a
// statement, which costs the connection.
func brokeItself(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

func isCommitError(err error) bool {
	var commit *commitError
	return errors.As(err, &commit)
}

// record writes a fate in a transaction of its own. Somebody else may have
// claimed or settled the message since: then theirs counts.
func (p *Processor) record(ctx context.Context, r *result) error {
	if r.fate == released {
		return nil
	}
	err := p.write(ctx, r)
	if !r.noHook && (errors.Is(err, ErrTransactionLost) || isCommitError(err) && p.refusedAtCommit(err)) {
		r.noHook = true
		err = p.write(ctx, r)
	}
	switch {
	case err == nil:
		p.report(ctx, r)
		return nil
	case errors.Is(err, errNotClaimed), p.repo.dialect.retryCode(err) != "":
		return nil
	}
	return fmt.Errorf("record the failure of message %d: %w", r.claimed.ID, err)
}

// write is one try to record a fate.
func (p *Processor) write(ctx context.Context, r *result) error {
	ctx, cancel := detached(ctx)
	defer cancel()
	recording := &Claimed{}
	err := p.repo.inTransaction(ctx, txOptions{isolation: sql.LevelReadCommitted}, func(ctx context.Context, tx querier) (err error) {
		pg, ok := p.repo.store.(*postgres)
		if ok {
			if err := pg.setLockTimeout(ctx, tx, recordWait); err != nil {
				return err
			}
		}
		f := r.failure
		f.fresh = true
		if r.unparked, err = p.settle(ctx, tx, nil, []failure{f}); err != nil || r.noHook {
			return err
		}
		if ok && r.fate == died && p.config.OnDead != nil {
			if recording.transaction, err = pg.transaction(ctx, tx); err != nil {
				return err
			}
		}
		return p.callOnDead(ctx, tx, r)
	})
	if err != nil {
		p.evict(ctx, recording, err)
	}
	return err
}

// callOnDead runs the OnDead hook in tx. Its failure is its own: only a
// transaction that is lost is an error here.
func (p *Processor) callOnDead(ctx context.Context, tx querier, r *result) error {
	if r.fate != died || p.config.OnDead == nil {
		return nil
	}
	if _, err := tx.ExecContext(ctx, "SAVEPOINT "+hookSavepoint); err != nil {
		return fmt.Errorf("%w: %w", ErrTransactionLost, err)
	}
	hook := p.runHook(context.WithoutCancel(ctx), tx, r)
	ctx, cancel := detached(ctx)
	defer cancel()
	if hook.err == nil {
		_, hook.err = tx.ExecContext(ctx, "RELEASE SAVEPOINT "+hookSavepoint)
	}
	if hook.err == nil {
		return nil
	}
	p.log.ErrorContext(ctx, "inbox: the OnDead hook failed; what it wrote is undone",
		"id", r.claimed.ID, "name", r.claimed.Name, "error", errorText(hook.err))
	if hook.leaked {
		return ErrTransactionLost
	}
	if err := rollbackTo(ctx, tx, hookSavepoint); err != nil {
		// Not wrapped: a connection that the hook has cost is no interruption.
		return fmt.Errorf("%w: %v", ErrTransactionLost, err)
	}
	return nil
}
