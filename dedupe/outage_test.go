package dedupe_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/letterbox-go/letterbox/dedupe"
)

// down is a store that refuses everything.
func down() *scripted {
	s := newScripted()
	s.reserve = func(context.Context, int) (dedupe.Reservation, error) { return dedupe.Reservation{}, errDown }
	s.confirm = func(context.Context, int) error { return errDown }
	s.release = func(context.Context, int) error { return errDown }
	return s
}

func TestWhenTheStoreIsDownRunRuns(t *testing.T) {
	t.Parallel()
	var log logBuffer
	guard := newGuard(t, dedupe.Config{Store: down(), Logger: log.logger()})
	runs := 0
	for i := range 20 {
		want(t, true, nil)(guard.Do(t.Context(), "s", fmt.Sprint(i), succeed(&runs)))
		want(t, false, nil)(guard.Do(t.Context(), "s", fmt.Sprint(i), succeed(&runs))) // this process remembers
	}
	want(t, true, errFailed)(guard.Do(t.Context(), "s", "fails", func(context.Context) error { return errFailed }))
	// Reserve and confirm fail for 20 keys, reserve and release for the last.
	wantStats(t, guard, dedupe.Stats{Runs: 21, Duplicates: 20, CacheHits: 20, CacheSize: 20, StoreErrors: 42})
	if got := log.count(errDown.Error()); got != 1 {
		t.Errorf("%d log lines, want 1", got)
	}
}

func TestWhenTheStoreIsDownFailFails(t *testing.T) {
	t.Parallel()
	var log logBuffer
	guard := newGuard(t, dedupe.Config{Store: down(), OnStoreError: dedupe.Fail, Logger: log.logger()})
	runs := 0
	ran, err := guard.Do(t.Context(), "s", "k", succeed(&runs))
	want(t, false, errDown)(ran, err)
	var failed *dedupe.StoreError
	if !errors.As(err, &failed) || failed.Op != "reserve" {
		t.Errorf("got %v", err)
	}
	if runs != 0 {
		t.Error("fn ran")
	}
	wantStats(t, guard, dedupe.Stats{StoreErrors: 2}) // reserve, and release in case it had arrived
	if got := log.count("calls fail"); got != 1 {
		t.Errorf("%d log lines, want 1", got)
	}
}

func TestAnOutageIsLoggedEveryTenSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		guard := newGuard(t, dedupe.Config{Store: down(), Logger: log.logger()})
		runs := 0
		for i := range 60 {
			want(t, true, nil)(guard.Do(t.Context(), "s", fmt.Sprint(i), succeed(&runs)))
			time.Sleep(time.Second)
		}
		if got := log.count("the store failed"); got != 6 {
			t.Errorf("%d log lines in a minute, want 6", got)
		}
	})
}

func TestAStoreThatHangsCountsAsDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newScripted()
		store.reserve = func(ctx context.Context, _ int) (dedupe.Reservation, error) {
			<-ctx.Done()
			return dedupe.Reservation{}, ctx.Err()
		}
		guard := newGuard(t, dedupe.Config{Store: store})
		start, runs := time.Now(), 0
		want(t, true, nil)(guard.Do(t.Context(), "s", "k", succeed(&runs)))
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("took %v, want StoreTimeout", took)
		}
		// The store has learnt of it all the same.
		want(t, false, nil)(newGuard(t, dedupe.Config{Store: store.Memory}).Do(t.Context(), "s", "k", succeed(&runs)))
	})
}

func TestTheCallersContextIsNotAnOutage(t *testing.T) {
	t.Parallel()
	store := newScripted()
	ctx, cancel := context.WithCancel(t.Context())
	store.reserve = func(ctx context.Context, _ int) (dedupe.Reservation, error) {
		// The reservation arrives, its reply does not.
		_, _ = store.Memory.Reserve(context.WithoutCancel(ctx), dedupe.Key{Scope: "s", ID: "k"}, "unknown", time.Hour)
		cancel()
		return dedupe.Reservation{}, ctx.Err()
	}
	guard := newGuard(t, dedupe.Config{Store: store})
	runs := 0
	want(t, false, context.Canceled)(guard.Do(ctx, "s", "k", succeed(&runs)))
	if runs != 0 {
		t.Error("ran although the caller had gone")
	}
	if got := store.calls(); got != "reserve release" {
		t.Errorf("calls %q: a reservation that may have arrived has to be released", got)
	}
	wantStats(t, guard, dedupe.Stats{})
}

func TestALostReplyToReserveDoesNotLockTheKey(t *testing.T) {
	t.Parallel()
	store := &lossy{Memory: dedupe.NewMemory(dedupe.MemoryConfig{}), lose: true}
	guard := newGuard(t, dedupe.Config{Store: store, OnStoreError: dedupe.Fail, CacheSize: -1})
	runs := 0
	want(t, false, errDown)(guard.Do(t.Context(), "s", "k", succeed(&runs)))
	store.lose = false
	want(t, true, nil)(guard.Do(t.Context(), "s", "k", succeed(&runs)))
}

// lossy does what it is asked, and loses the reply to Reserve.
type lossy struct {
	*dedupe.Memory
	lose bool
}

func (l *lossy) Reserve(ctx context.Context, key dedupe.Key, token string, lease time.Duration) (dedupe.Reservation, error) {
	found, err := l.Memory.Reserve(ctx, key, token, lease)
	if l.lose {
		return dedupe.Reservation{}, errDown
	}
	return found, err
}

func TestAConfirmationThatFails(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T, failures int, policy dedupe.StoreErrorPolicy) (*scripted, *dedupe.Guard) {
		store := newScripted()
		store.confirm = func(_ context.Context, call int) error {
			if call <= failures {
				return errDown
			}
			return nil
		}
		return store, newGuard(t, dedupe.Config{Store: store, OnStoreError: policy})
	}
	t.Run("once is tried again", func(t *testing.T) {
		t.Parallel()
		store, guard := setup(t, 1, dedupe.Fail)
		runs := 0
		want(t, true, nil)(guard.Do(t.Context(), "s", "k", succeed(&runs)))
		want(t, false, nil)(newGuard(t, dedupe.Config{Store: store}).Do(t.Context(), "s", "k", succeed(&runs)))
	})
	t.Run("with Run is a success", func(t *testing.T) {
		t.Parallel()
		_, guard := setup(t, 2, dedupe.Run)
		runs := 0
		want(t, true, nil)(guard.Do(t.Context(), "s", "k", succeed(&runs)))
		want(t, false, nil)(guard.Do(t.Context(), "s", "k", succeed(&runs)))
		wantStats(t, guard, dedupe.Stats{Runs: 1, Duplicates: 1, CacheHits: 1, CacheSize: 1, StoreErrors: 1})
	})
	t.Run("with Fail says that fn has run", func(t *testing.T) {
		t.Parallel()
		_, guard := setup(t, 2, dedupe.Fail)
		runs := 0
		ran, err := guard.Do(t.Context(), "s", "k", succeed(&runs))
		want(t, true, errDown)(ran, err)
		var failed *dedupe.StoreError
		if !errors.As(err, &failed) || failed.Op != "confirm" {
			t.Errorf("got %v", err)
		}
		want(t, false, nil)(guard.Do(t.Context(), "s", "k", succeed(&runs)))
	})
}

func TestAReleaseThatFailsLeavesTheKeyToTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newScripted()
		store.release = func(context.Context, int) error { return errDown }
		guard := newGuard(t, dedupe.Config{Store: store, Lease: time.Minute, OnStoreError: dedupe.Fail})
		start, runs := time.Now(), 0
		want(t, true, errFailed)(guard.Do(t.Context(), "s", "k", func(context.Context) error { return errFailed }))
		want(t, true, nil)(guard.Do(t.Context(), "s", "k", succeed(&runs)))
		if took := time.Since(start); took < time.Minute || took > time.Minute+2*time.Second {
			t.Errorf("the key was free after %v, want the lease of a minute", took)
		}
		wantStats(t, guard, dedupe.Stats{Runs: 2, CacheSize: 1, StoreErrors: 1})
	})
}

func TestAKeyThatIsHeldIsNotRunBecauseTheStoreFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newScripted()
		store.reserve = func(_ context.Context, call int) (dedupe.Reservation, error) {
			if call == 1 {
				return dedupe.Reservation{State: dedupe.Held, Remaining: time.Minute}, nil
			}
			return dedupe.Reservation{}, errDown
		}
		guard := newGuard(t, dedupe.Config{Store: store})
		start, runs := time.Now(), 0
		want(t, true, nil)(guard.Do(t.Context(), "s", "k", succeed(&runs)))
		if took := time.Since(start); took < time.Minute {
			t.Errorf("ran after %v, while the other's lease of a minute was running", took)
		}
	})
}

func TestCleanupReportsAStoreThatIsDown(t *testing.T) {
	t.Parallel()
	guard := newGuard(t, dedupe.Config{Store: brokenCleaner{dedupe.NewMemory(dedupe.MemoryConfig{})}})
	deleted, err := guard.CleanupExpired(t.Context())
	var failed *dedupe.StoreError
	if deleted != 7 || !errors.As(err, &failed) || failed.Op != "clean up" || !errors.Is(err, errDown) {
		t.Errorf("got %d, %v", deleted, err)
	}
	wantStats(t, guard, dedupe.Stats{StoreErrors: 1})
}

type brokenCleaner struct{ *dedupe.Memory }

func (brokenCleaner) CleanupExpired(context.Context, int) (int, error) { return 7, errDown }

func TestCleanupGoesOnUntilNothingIsLeft(t *testing.T) {
	t.Parallel()
	store := &full{left: 2005}
	guard := newGuard(t, dedupe.Config{Store: store})
	if deleted, err := guard.CleanupExpired(t.Context()); deleted != 2005 || err != nil {
		t.Errorf("got %d, %v", deleted, err)
	}
	if store.largest != 1000 {
		t.Errorf("a batch of %d, want 1000", store.largest)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := guard.CleanupExpired(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// full has keys to clean up.
type full struct {
	dedupe.Memory
	left, largest int
}

func (f *full) CleanupExpired(_ context.Context, limit int) (int, error) {
	n := min(f.left, limit)
	f.left -= n
	f.largest = max(f.largest, n)
	return n, nil
}
