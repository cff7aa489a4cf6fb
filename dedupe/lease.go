package dedupe

import (
	"context"
	"time"
)

// extend keeps the lease from ending while fn runs. It cancels fn with
// ErrLeaseLost when another process has the key, and, with the policy Fail, when
// the lease may have ended because the store does not answer. Nothing is sent
// after stop has returned: an extension that overtook the release would hold the
// key for a whole lease.
func (r *run) extend(ctx context.Context, cancel context.CancelCauseFunc) (stop func()) {
	if !r.reserved {
		return func() {}
	}
	stopped, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		r.extendUntil(context.WithoutCancel(ctx), stopped, cancel)
	}()
	return func() {
		close(stopped)
		<-ended
	}
}

func (r *run) extendUntil(ctx context.Context, stopped <-chan struct{}, cancel context.CancelCauseFunc) {
	config := &r.guard.config
	timer := time.NewTimer(config.Lease / 3)
	defer timer.Stop()
	for {
		select {
		case <-stopped:
			return
		case <-timer.C:
		}
		timeout := config.StoreTimeout
		if left := time.Until(r.leaseEnd); left > 0 {
			timeout = min(timeout, left)
		}
		found, err := r.reserve(ctx, timeout)
		switch {
		case err != nil:
			_ = r.guard.storeFailed(ctx, "reserve", err)
			if time.Now().Before(r.leaseEnd) {
				timer.Reset(min(config.Lease/10, time.Until(r.leaseEnd)))
				continue
			}
			r.lost = true
			if config.OnStoreError == Fail {
				cancel(ErrLeaseLost)
				return
			}
		case found.State != Reserved:
			r.lost = true
			cancel(ErrLeaseLost)
			return
		}
		timer.Reset(config.Lease / 3)
	}
}
