package inbox

import (
	"context"
	"database/sql"
	"slices"
	"time"
)

// codeQueryCanceled is what a statement_timeout ends with.
const codeQueryCanceled = "57014"

// removal removes what may go of the rows that a batch has examined.
type removal func(ctx context.Context, tx querier, now time.Time, rows []sweepRow, step *sweepStep) error

// sweepStep is what one batch did.
type sweepStep struct {
	SweepResult
	mark int64 // up to here everything was old enough to be examined for good
	last bool  // what follows is younger
}

// sweepRow is an examined message.
type sweepRow struct {
	ID          int64
	Status      int
	ReceivedAt  moment
	ProcessedAt moment
	DiscardedAt moment
	Payload     bool
}

// ended reports that the message is finished, and was before the time given.
func (r *sweepRow) ended(cutoff time.Time) bool {
	end := r.ProcessedAt.Time
	if r.Status == statusDead {
		end = r.DiscardedAt.Time
	}
	return !end.IsZero() && end.Before(cutoff) && r.ReceivedAt.Before(cutoff)
}

// sweepStep examines the rows after an id, and removes what it may, in one
// transaction.
func (r *Repository) sweepStep(ctx context.Context, after int64, limit int, remove removal) (step sweepStep, err error) {
	err = r.inTransaction(ctx, txOptions{isolation: sql.LevelReadCommitted}, func(ctx context.Context, tx querier) error {
		step = sweepStep{}
		if mine, err := r.lockSweep(ctx, tx); err != nil || !mine {
			step.Busy = !mine
			return err
		}
		now, err := r.current(ctx, tx)
		if err != nil {
			return err
		}
		var rows []sweepRow
		if err := r.scan(ctx, tx, &rows, r.both(sweepExamine), after, limit); err != nil {
			return err
		}
		step.Examined, step.last = int64(len(rows)), len(rows) < limit
		return remove(ctx, tx, now, rows, &step)
	})
	return step, err
}

// lockSweep makes this transaction the only one that sweeps. On SQLite the write
// lock does.
func (r *Repository) lockSweep(ctx context.Context, tx querier) (mine bool, err error) {
	pg, ok := r.store.(*postgres)
	if !ok {
		return true, nil
	}
	if err := pg.setLockTimeout(ctx, tx, verbWait); err != nil {
		return false, err
	}
	err = r.scan(ctx, tx, &mine, postgresSweepLock, r.lockKey("sweep"))
	return mine, err
}

// advance moves the mark over the rows that are older than cutoff, and notes when
// there are no others.
func (s *sweepStep) advance(rows []sweepRow, cutoff time.Time) {
	old := 0
	for i := range rows {
		if rows[i].ReceivedAt.Before(cutoff) {
			old++
			s.mark = rows[i].ID
		}
	}
	s.last = s.last || old == 0
}

// sweepRows deletes messages.
func (r *Repository) sweepRows(ctx context.Context, tx querier, now time.Time, rows []sweepRow, step *sweepStep) error {
	retention := r.config.Retention
	cutoff, _ := before(now, retention.DedupeWindow)
	step.advance(rows, cutoff)
	dead, deadToo := before(now, retention.DeadRetention)
	pending, pendingToo := before(now, retention.PendingRetention)
	var ended, queued []int64
	for i := range rows {
		row := &rows[i]
		switch {
		case row.ended(cutoff):
			ended = append(ended, row.ID)
		case deadToo && row.Status == statusDead && row.DiscardedAt.IsZero() && row.ReceivedAt.Before(dead),
			pendingToo && row.Status == statusPending && row.ReceivedAt.Before(pending):
			queued = append(queued, row.ID)
		}
	}
	if len(queued) > 0 { // queue rows are locked before messages
		if err := r.sweepUnfinished(ctx, tx, queued, dead, pending, step); err != nil {
			return err
		}
	}
	if len(ended) == 0 {
		return nil
	}
	at := r.timeText(cutoff)
	deleted, err := r.sweepIDs(ctx, tx, sweepProcessed, ended, at, at, at)
	if err != nil {
		return err
	}
	step.Deleted += int64(len(deleted))
	_, err = r.exec(ctx, tx, r.both(sweepAttempts, deleted...))
	return err
}

// sweepIDs removes those of ids that nobody holds and that still may go.
func (r *Repository) sweepIDs(ctx context.Context, tx querier, template string, ids []int64, args ...any) (gone []int64, err error) {
	var free []int64
	if err := r.scan(ctx, tx, &free, r.both(sweepLockMessages, ids...)); err != nil || len(free) == 0 {
		return nil, err
	}
	err = r.scan(ctx, tx, &gone, r.both(template, free...), args...)
	return gone, err
}

// sweepUnfinished deletes dead and pending messages, which are in the queue, and
// lets the next ones of their ordering keys go on.
func (r *Repository) sweepUnfinished(ctx context.Context, tx querier, ids []int64, dead, pending time.Time, step *sweepStep) error {
	var locked []struct {
		ID          int64
		OrderingKey string
	}
	if err := r.scan(ctx, tx, &locked, r.both(sweepLockQueued, ids...), r.timeText(dead), r.timeText(pending)); err != nil {
		return err
	}
	keyOf := map[int64]string{}
	free := make([]int64, len(locked))
	for i, row := range locked {
		free[i], keyOf[row.ID] = row.ID, row.OrderingKey
	}
	var gone []struct {
		ID     int64
		Status int
	}
	if err := r.scan(ctx, tx, &gone, r.both(sweepQueued, free...), r.timeText(dead), r.timeText(pending)); err != nil || len(gone) == 0 {
		return err
	}
	var keys []string
	deleted := make([]int64, len(gone))
	for i, row := range gone {
		deleted[i] = row.ID
		if row.Status == statusDead {
			step.Dead++
		} else {
			step.Pending++
		}
		if key := keyOf[row.ID]; key != "" && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	step.Deleted += int64(len(gone))
	if err := r.execCount(ctx, tx, len(deleted), r.both(sweepQueue, deleted...)); err != nil {
		return err
	}
	if _, err := r.exec(ctx, tx, r.both(sweepAttempts, deleted...)); err != nil || len(keys) == 0 {
		return err
	}
	_, err := r.store.unpark(ctx, tx, keys, unparkAtOnce)
	return err
}

// sweepStrips removes payloads.
func (r *Repository) sweepStrips(ctx context.Context, tx querier, now time.Time, rows []sweepRow, step *sweepStep) error {
	cutoff, _ := before(now, r.config.Retention.PayloadRetention)
	step.advance(rows, cutoff)
	var ids []int64
	for i := range rows {
		if rows[i].Payload && rows[i].ended(cutoff) {
			ids = append(ids, rows[i].ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	at := r.timeText(cutoff)
	stripped, err := r.sweepIDs(ctx, tx, sweepPayloads, ids, at, at, at)
	step.Payloads += int64(len(stripped))
	return err
}
