package dedupe_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/letterbox-go/letterbox/dedupe"
)

func TestALeaseIsExtendedAtEachThird(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newScripted()
		guard := newGuard(t, dedupe.Config{Store: store, Lease: time.Minute})
		want(t, true, nil)(guard.Do(t.Context(), "s", "k", func(ctx context.Context) error {
			time.Sleep(61 * time.Second)
			return context.Cause(ctx)
		}))
		if got := store.calls(); got != "reserve reserve reserve reserve confirm" {
			t.Errorf("calls %q", got)
		}
		wantStats(t, guard, dedupe.Stats{Runs: 1, CacheSize: 1})
	})
}

func TestTheLeaseIsExtendedAfterTheCallersContextHasEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newScripted()
		guard := newGuard(t, dedupe.Config{Store: store, Lease: time.Minute})
		ctx, cancel := context.WithCancel(t.Context())
		want(t, true, nil)(guard.Do(ctx, "s", "k", func(context.Context) error {
			cancel()
			time.Sleep(10 * time.Minute) // stubborn
			return nil
		}))
		wantStats(t, guard, dedupe.Stats{Runs: 1, CacheSize: 1})
	})
}

func TestALostLeaseIsTold(t *testing.T) {
	t.Parallel()
	for name, state := range map[string]dedupe.State{"held by another": dedupe.Held, "confirmed by another": dedupe.Confirmed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := newScripted()
				store.reserve = func(_ context.Context, call int) (dedupe.Reservation, error) {
					if call == 1 {
						return dedupe.Reservation{}, nil
					}
					return dedupe.Reservation{State: state, Remaining: time.Hour}, nil
				}
				var log logBuffer
				guard := newGuard(t, dedupe.Config{Store: store, Lease: time.Minute, Logger: log.logger()})
				start := time.Now()
				want(t, true, dedupe.ErrLeaseLost)(guard.Do(t.Context(), "s", "k", func(ctx context.Context) error {
					<-ctx.Done()
					return context.Cause(ctx)
				}))
				if took := time.Since(start); took != 20*time.Second {
					t.Errorf("told after %v", took)
				}
				wantStats(t, guard, dedupe.Stats{Runs: 1, LeasesLost: 1})
				if log.count("a lease ended before its run") != 1 {
					t.Error("not logged")
				}
			})
		})
	}
}

func TestASuccessWithoutLeaseIsRemembered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newScripted()
		store.reserve = func(_ context.Context, call int) (dedupe.Reservation, error) {
			if call == 1 {
				return dedupe.Reservation{}, nil
			}
			return dedupe.Reservation{State: dedupe.Held, Remaining: time.Hour}, nil
		}
		guard := newGuard(t, dedupe.Config{Store: store, Lease: time.Minute})
		want(t, true, nil)(guard.Do(t.Context(), "s", "k", func(ctx context.Context) error {
			time.Sleep(2 * time.Minute)
			if !errors.Is(context.Cause(ctx), dedupe.ErrLeaseLost) {
				t.Error("fn was not told")
			}
			return nil // too late to stop
		}))
		wantStats(t, guard, dedupe.Stats{Runs: 1, LeasesLost: 1, CacheSize: 1})
		runs := 0
		want(t, false, nil)(newGuard(t, dedupe.Config{Store: store.Memory}).Do(t.Context(), "s", "k", succeed(&runs)))
	})
}

// A store that fails while fn runs.
func TestWhenTheLeaseCannotBeExtended(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T, policy dedupe.StoreErrorPolicy, failUntil int) *dedupe.Guard {
		store := newScripted()
		store.reserve = func(_ context.Context, call int) (dedupe.Reservation, error) {
			if call > 1 && call <= failUntil {
				return dedupe.Reservation{}, errDown
			}
			return dedupe.Reservation{}, nil
		}
		return newGuard(t, dedupe.Config{Store: store, Lease: time.Minute, OnStoreError: policy})
	}
	t.Run("once, it is tried again in time", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			guard := setup(t, dedupe.Fail, 2)
			want(t, true, nil)(guard.Do(t.Context(), "s", "k", func(ctx context.Context) error {
				time.Sleep(10 * time.Minute)
				return context.Cause(ctx)
			}))
			wantStats(t, guard, dedupe.Stats{Runs: 1, CacheSize: 1, StoreErrors: 1})
		})
	})
	t.Run("until its end, Fail stops fn", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			guard := setup(t, dedupe.Fail, 1000)
			start := time.Now()
			want(t, true, dedupe.ErrLeaseLost)(guard.Do(t.Context(), "s", "k", func(ctx context.Context) error {
				<-ctx.Done()
				return context.Cause(ctx)
			}))
			if took := time.Since(start); took != time.Minute {
				t.Errorf("stopped after %v, want the lease", took)
			}
			if got := guard.Stats().LeasesLost; got != 1 {
				t.Errorf("%d leases lost", got)
			}
		})
	})
	t.Run("until its end, Run lets fn finish", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			guard := setup(t, dedupe.Run, 10)
			want(t, true, nil)(guard.Do(t.Context(), "s", "k", func(ctx context.Context) error {
				time.Sleep(10 * time.Minute)
				return context.Cause(ctx)
			}))
			if got := guard.Stats().LeasesLost; got != 1 {
				t.Errorf("%d leases lost", got)
			}
		})
	})
}

func TestNoExtensionIsSentAfterTheRelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newScripted()
		store.reserve = func(_ context.Context, call int) (dedupe.Reservation, error) {
			if call == 2 {
				time.Sleep(3 * time.Second) // on its way when fn fails
			}
			return dedupe.Reservation{}, nil
		}
		guard := newGuard(t, dedupe.Config{Store: store, Lease: time.Minute})
		want(t, true, errFailed)(guard.Do(t.Context(), "s", "k", func(context.Context) error {
			time.Sleep(21 * time.Second)
			return errFailed
		}))
		time.Sleep(5 * time.Second)
		if got := store.calls(); got != "reserve reserve release" {
			t.Errorf("calls %q", got)
		}
		if store.Len() != 0 {
			t.Error("the key is still held")
		}
	})
}
