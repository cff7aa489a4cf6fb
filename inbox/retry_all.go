package inbox

import (
	"context"
	"errors"
	"time"
)

// RetryAllOptions are the settings of RetryAll.
type RetryAllOptions struct {
	// Limit is how many messages are retried at most. Default: all.
	Limit int64
	// DryRun only counts.
	DryRun bool
	// BatchSize is how many messages share a transaction. Default 500.
	BatchSize int
	// PerSecond bounds the rate. Default: no bound.
	PerSecond int
	// Progress is called after each transaction with the number of messages so
	// far, in the calling goroutine.
	Progress func(done int64)
}

// RetryAll lets all dead messages that match the filter run again, the oldest
// first, and returns how many. It works in bounded transactions while processors
// run: after an error, or the end of ctx, what it counted stays retried. A
// message that dies again meanwhile is not retried twice.
//
// Only dead messages are retried, so Status must be Dead or zero; Parked and
// Discarded must be false. Messages whose payload was removed are left out.
func (r *Repository) RetryAll(ctx context.Context, filter Filter, options RetryAllOptions) (n int64, err error) {
	if filter.Status != 0 && filter.Status != Dead || filter.Parked || filter.Discarded {
		return 0, errors.New("inbox: retry all: only dead messages can be retried")
	}
	filter.Status = Dead
	setDefault(&options.BatchSize, 500)
	defer func() {
		if n > 0 && !options.DryRun {
			r.audit(ctx, "retry-all", n, Info{Identity: Identity{Name: filter.Name}})
		}
	}()
	for after, more := int64(0), true; more; {
		var ids []int64
		if ids, after, more, err = r.deadAfter(ctx, filter, after); err != nil {
			return n, r.acted("retry all", err)
		}
		if left := options.Limit - n; options.Limit > 0 && int64(len(ids)) >= left {
			ids, more = ids[:left], false
		}
		if options.DryRun {
			n += int64(len(ids))
			continue
		}
		done, err := r.retryIDs(ctx, ids, options, n)
		if n += done; err != nil {
			return n, r.acted("retry all", err)
		}
	}
	return n, nil
}

// retryIDs retries those of ids that are still dead; before were retried earlier.
func (r *Repository) retryIDs(ctx context.Context, ids []int64, options RetryAllOptions, before int64) (n int64, err error) {
	for len(ids) > 0 {
		chunk := ids[:min(len(ids), options.BatchSize)]
		ids = ids[len(chunk):]
		began := time.Now()
		var dead []int64
		err := r.acting(ctx, func(ctx context.Context, tx querier) error {
			dead = nil
			if err := r.scan(ctx, tx, &dead, r.both(lockDead, chunk...)); err != nil || len(dead) == 0 {
				return err
			}
			return r.revive(ctx, tx, dead)
		})
		if err != nil {
			return n, err
		}
		n += int64(len(dead))
		if len(dead) > 0 {
			r.wake()
		}
		if options.Progress != nil {
			options.Progress(before + n)
		}
		if options.PerSecond > 0 {
			pause := time.Duration(len(dead)) * time.Second / time.Duration(options.PerSecond)
			if err := sleep(ctx, pause-time.Since(began)); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}
