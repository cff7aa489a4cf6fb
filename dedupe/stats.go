package dedupe

import (
	"context"
	"sync/atomic"
	"time"
)

// logInterval bounds the lines about a store that is down.
const logInterval = 10 * time.Second

// Stats counts since New. CacheSize is what it is now.
type Stats struct {
	Runs        int64 // calls that ran their fn, whatever came of it
	Duplicates  int64 // calls that reported "not run"
	CacheHits   int64 // duplicates that cost no call of the store and no waiting
	CacheSize   int   // keys in the guard's memory, expired ones included
	StoreErrors int64 // failed operations of the store
	LeasesLost  int64 // runs whose lease ended before they did
}

type counters struct {
	runs, duplicates, cacheHits, storeErrors, leasesLost atomic.Int64

	lastLog atomic.Int64 // nanoseconds, Unix time
}

// Stats returns the counters.
func (g *Guard) Stats() Stats {
	s := Stats{
		Runs:        g.runs.Load(),
		Duplicates:  g.duplicates.Load(),
		CacheHits:   g.cacheHits.Load(),
		StoreErrors: g.storeErrors.Load(),
		LeasesLost:  g.leasesLost.Load(),
	}
	if g.cache != nil {
		s.CacheSize = g.cache.Len()
	}
	return s
}

// storeFailed counts and logs an error of the store and gives it its type.
func (g *Guard) storeFailed(ctx context.Context, op string, err error) error {
	total := g.storeErrors.Add(1)
	now, last := time.Now().UnixNano(), g.lastLog.Load()
	if now-last >= int64(logInterval) && g.lastLog.CompareAndSwap(last, now) {
		consequence := "runs go on without the store"
		if g.config.OnStoreError == Fail {
			consequence = "calls fail"
		}
		g.config.Logger.ErrorContext(ctx, "dedupe: the store failed",
			"operation", op, "error", err, "errors so far", total, "consequence", consequence)
	}
	return &StoreError{Op: op, Err: err}
}
