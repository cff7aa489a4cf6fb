package dedupe

import (
	"context"
	"math/rand/v2"
	"time"
)

// A waiting process looks again after firstPause, then at growing intervals.
const (
	firstPause = 10 * time.Millisecond
	maxPause   = time.Second
)

// run is one try to run a key, from the reservation to its end.
type run struct {
	guard *Guard
	key   Key
	token string
	ttl   time.Duration

	reserved  bool      // the store said so
	leaseEnd  time.Time // by this process's clock, and never late
	lost      bool      // written by the goroutine of extend until it is stopped
	succeeded bool      // fn returned nil
}

// acquire reserves the key, or finds it confirmed; it waits while another
// process holds it. With the policy Run it also returns when the store fails.
func (r *run) acquire(ctx context.Context) (found Reservation, err error) {
	unsure := false // a failed call may have reserved the key all the same
	defer func() {
		if err != nil && unsure {
			r.release(ctx)
		}
	}()
	var heldUntil time.Time
	for try := 0; ; try++ {
		found, err = r.reserve(ctx, r.guard.config.StoreTimeout)
		switch {
		case err == nil && found.State != Held:
			return found, nil
		case err == nil:
			unsure = false
			heldUntil = time.Now().Add(found.Remaining)
		case ctx.Err() != nil:
			unsure = true
			return found, ctx.Err()
		default:
			unsure = true
			err = r.guard.storeFailed(ctx, "reserve", err)
			if r.guard.config.OnStoreError == Fail {
				return found, err
			}
			// Known to be held is known to be run: only a lease that has
			// ended makes it worth a second one.
			if !time.Now().Before(heldUntil) {
				return Reservation{}, nil
			}
		}
		if err := sleep(ctx, min(pause(try), time.Until(heldUntil))); err != nil {
			return found, err
		}
	}
}

// reserve takes or extends the lease.
func (r *run) reserve(ctx context.Context, timeout time.Duration) (Reservation, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	sent := time.Now()
	found, err := r.guard.store.Reserve(ctx, r.key, r.token, r.guard.config.Lease)
	if err == nil && found.State == Reserved {
		r.reserved = true
		r.leaseEnd = sent.Add(r.guard.config.Lease)
	}
	return found, err
}

// do runs fn and records how it ended, also when it panics or calls Goexit.
func (r *run) do(ctx context.Context, fn func(context.Context) error) error {
	fnCtx, cancel := context.WithCancelCause(nest(ctx, r.guard, r.key))
	defer cancel(nil)
	stop := r.extend(fnCtx, cancel)
	r.guard.runs.Add(1)
	defer func() {
		if !r.succeeded {
			stop()
			r.release(ctx)
			r.countLost(ctx)
		}
	}()
	if err := fn(fnCtx); err != nil {
		return err
	}
	r.succeeded = true
	stop()
	err := r.confirm(ctx)
	r.countLost(ctx)
	return err
}

// confirm records the success. The guard remembers it whatever the store says.
func (r *run) confirm(ctx context.Context) error {
	g := r.guard
	g.remember(r.key, g.config.Clock().Add(r.ttl))
	var err error
	for range 2 { // the second try repeats a call that may have arrived
		var held bool
		if held, err = r.confirmOnce(ctx); err == nil {
			if r.reserved && !held {
				r.lost = true
			}
			return nil
		}
	}
	if err = g.storeFailed(ctx, "confirm", err); g.config.OnStoreError == Run {
		return nil
	}
	return err
}

func (r *run) confirmOnce(ctx context.Context) (held bool, err error) {
	ctx, cancel := r.detached(ctx)
	defer cancel()
	return r.guard.store.Confirm(ctx, r.key, r.token, r.ttl)
}

// release frees the key. When the store fails, the end of the lease does.
func (r *run) release(ctx context.Context) {
	ctx, cancel := r.detached(ctx)
	defer cancel()
	held, err := r.guard.store.Release(ctx, r.key, r.token)
	switch {
	case err != nil:
		_ = r.guard.storeFailed(ctx, "release", err)
	case r.reserved && !held:
		r.lost = true
	}
}

// detached is for what has to be said although the caller is gone.
func (r *run) detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), r.guard.config.StoreTimeout)
}

func (r *run) countLost(ctx context.Context) {
	if !r.lost {
		return
	}
	r.guard.leasesLost.Add(1)
	r.guard.config.Logger.WarnContext(ctx, "dedupe: a lease ended before its run: the key may have run twice",
		"scope", r.key.Scope, "key", r.key.ID, "lease", r.guard.config.Lease)
}

// pause grows to maxPause; the jitter spreads the processes that wait for one key.
func pause(try int) time.Duration {
	ceiling := min(firstPause<<min(try, 10), maxPause)
	return ceiling/2 + rand.N(ceiling/2)
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(max(d, time.Millisecond))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
