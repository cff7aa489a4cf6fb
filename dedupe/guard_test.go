package dedupe_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/letterbox-go/letterbox/dedupe"
	"github.com/letterbox-go/letterbox/dedupe/dedupetest"
)

func TestMemoryContract(t *testing.T) {
	t.Parallel()
	dedupetest.Run(t, func(t *testing.T) dedupe.Store { return dedupe.NewMemory(dedupe.MemoryConfig{}) })
}

func TestAKeyIsRememberedForTheTTL(t *testing.T) {
	t.Parallel()
	for _, cacheSize := range []int{0, -1} {
		t.Run(fmt.Sprint("cache size ", cacheSize), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				guard := newGuard(t, dedupe.Config{Store: dedupe.NewMemory(dedupe.MemoryConfig{}), CacheSize: cacheSize})
				runs := 0
				want(t, true, nil)(guard.Do(t.Context(), "s", "k", succeed(&runs)))
				time.Sleep(24*time.Hour - time.Nanosecond)
				want(t, false, nil)(guard.Do(t.Context(), "s", "k", succeed(&runs)))
				time.Sleep(time.Nanosecond)
				want(t, true, nil)(guard.Do(t.Context(), "s", "k", succeed(&runs)))
				want(t, true, nil)(guard.DoFor(t.Context(), "s", "l", time.Minute, succeed(&runs)))
				time.Sleep(time.Minute)
				want(t, true, nil)(guard.DoFor(t.Context(), "s", "l", time.Minute, succeed(&runs)))
				want(t, false, nil)(guard.Do(t.Context(), "s", "k", succeed(&runs)))
				if runs != 4 {
					t.Errorf("%d runs, want 4", runs)
				}
			})
		})
	}
}

func TestTheClockOfTheCacheCanBeReplaced(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	guard := newGuard(t, dedupe.Config{Store: dedupe.NewMemory(dedupe.MemoryConfig{Clock: clock}), Clock: clock})
	runs := 0
	want(t, true, nil)(guard.Do(t.Context(), "s", "k", succeed(&runs)))
	now = now.Add(24*time.Hour - 1)
	want(t, false, nil)(guard.Do(t.Context(), "s", "k", succeed(&runs)))
	now = now.Add(1)
	want(t, true, nil)(guard.Do(t.Context(), "s", "k", succeed(&runs)))
}

func TestACacheHitAsksNobody(t *testing.T) {
	t.Parallel()
	store := newScripted()
	guard := newGuard(t, dedupe.Config{Store: store})
	runs := 0
	for range 3 {
		_, err := guard.Do(t.Context(), "s", "k", succeed(&runs))
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := store.calls(); got != "reserve confirm" {
		t.Errorf("the store was asked to %s", got)
	}
	wantStats(t, guard, dedupe.Stats{Runs: 1, Duplicates: 2, CacheHits: 2, CacheSize: 1})
}

func TestTheCacheIsBoundedAndFallsThroughToTheStore(t *testing.T) {
	t.Parallel()
	store := newScripted()
	guard := newGuard(t, dedupe.Config{Store: store})
	runs := 0
	for i := range 10_001 {
		want(t, true, nil)(guard.Do(t.Context(), "s", fmt.Sprint(i), succeed(&runs)))
	}
	if got := guard.Stats().CacheSize; got != 10_000 {
		t.Errorf("the cache holds %d keys, want 10,000", got)
	}
	want(t, false, nil)(guard.Do(t.Context(), "s", "0", succeed(&runs))) // evicted
	want(t, false, nil)(guard.Do(t.Context(), "s", "10000", succeed(&runs)))
	wantStats(t, guard, dedupe.Stats{Runs: 10_001, Duplicates: 2, CacheHits: 1, CacheSize: 10_000})
	if got := store.counts["reserve"]; got != 10_002 {
		t.Errorf("the store was asked %d times, want 10,002", got)
	}
}

func TestACacheHitAllocatesNothing(t *testing.T) {
	guard := newGuard(t, dedupe.Config{Store: dedupe.NewMemory(dedupe.MemoryConfig{})})
	ctx, fn := t.Context(), func(context.Context) error { return nil }
	want(t, true, nil)(guard.Do(ctx, "mails", "0197c3f8-8b4e-7cc5-9a40-2f4d4c3a1b2e", fn))
	allocs := testing.AllocsPerRun(100, func() {
		if ran, err := guard.Do(ctx, "mails", "0197c3f8-8b4e-7cc5-9a40-2f4d4c3a1b2e", fn); ran || err != nil {
			t.Error(ran, err)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func TestABadKeyIsAPermanentErrorBeforeTheStoreIsAsked(t *testing.T) {
	t.Parallel()
	full := strings.Repeat("k", 256)
	for _, c := range []struct{ name, scope, key, field, reason string }{
		{"an empty key", "s", "", "key", "empty"},
		{"a key of 257 bytes", "s", full + "k", "key", "257 bytes, at most 256"},
		{"a key of 257 bytes in 129 characters", "s", strings.Repeat("é", 128) + "k", "key", "257 bytes, at most 256"},
		{"a scope of 257 bytes", full + "k", "k", "scope", "257 bytes, at most 256"},
		{"NUL in the key", "s", "a\x00b", "key", "control character U+0000"},
		{"C0 in the scope", "a\nb", "k", "scope", "control character U+000A"},
		{"DEL in the key", "s", "a\x7f", "key", "control character U+007F"},
		{"C1 in the key", "s", "a\u0085", "key", "control character U+0085"},
		{"invalid UTF-8 in the key", "s", "a\xff", "key", "invalid UTF-8"},
		{"a surrogate in the scope", "\xed\xa0\x80", "k", "scope", "invalid UTF-8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			store := newScripted()
			guard := newGuard(t, dedupe.Config{Store: store})
			runs := 0
			ran, err := guard.Do(t.Context(), c.scope, c.key, succeed(&runs))
			var bad *dedupe.KeyError
			if !errors.As(err, &bad) || bad.Field != c.field || bad.Err.Error() != c.reason {
				t.Errorf("got %v, want %s: %s", err, c.field, c.reason)
			}
			if ran || runs != 0 || store.calls() != "" || guard.Stats() != (dedupe.Stats{}) {
				t.Errorf("ran %v, %d runs, calls %q", ran, runs, store.calls())
			}
		})
	}
	t.Run("the longest key and an empty scope are fine", func(t *testing.T) {
		t.Parallel()
		guard := newGuard(t, dedupe.Config{Store: newScripted()})
		runs := 0
		want(t, true, nil)(guard.Do(t.Context(), full, full, succeed(&runs)))
		want(t, true, nil)(guard.Do(t.Context(), "", full, succeed(&runs)))
	})
}

func TestABadTTLIsAnError(t *testing.T) {
	t.Parallel()
	guard := newGuard(t, dedupe.Config{Store: newScripted()})
	runs := 0
	for _, ttl := range []time.Duration{-time.Second, 0, time.Microsecond, 11 * 365 * 24 * time.Hour} {
		if ran, err := guard.DoFor(t.Context(), "s", "k", ttl, succeed(&runs)); ran || err == nil {
			t.Errorf("%v: ran %v, %v", ttl, ran, err)
		}
	}
}

func TestACallInsideItsOwnRunIsAnError(t *testing.T) {
	t.Parallel()
	guard, other := newGuard(t, dedupe.Config{Store: newScripted()}), newGuard(t, dedupe.Config{Store: newScripted()})
	runs := 0
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // it would wait for itself
	defer cancel()
	want(t, true, nil)(guard.Do(ctx, "s", "k", func(ctx context.Context) error {
		want(t, true, nil)(guard.Do(ctx, "s", "inner", func(ctx context.Context) error {
			want(t, false, dedupe.ErrNested)(guard.Do(ctx, "s", "k", succeed(&runs)))
			want(t, true, nil)(other.Do(ctx, "s", "k", succeed(&runs)))
			return nil
		}))
		return nil
	}))
	if runs != 1 {
		t.Errorf("%d inner runs, want the other guard's only", runs)
	}
}

func TestWaitingInTheSameProcessEndsWithTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		guard := newGuard(t, dedupe.Config{Store: newScripted()})
		end := make(chan struct{})
		go guard.Do(t.Context(), "s", "k", func(context.Context) error { <-end; return nil })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		runs := 0
		want(t, false, context.DeadlineExceeded)(guard.Do(ctx, "s", "k", succeed(&runs)))
		close(end)
		synctest.Wait()
		wantStats(t, guard, dedupe.Stats{Runs: 1, CacheSize: 1})
	})
}

func TestAnEndedContextDoesNotBegin(t *testing.T) {
	t.Parallel()
	store := newScripted()
	guard := newGuard(t, dedupe.Config{Store: store})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	runs := 0
	want(t, false, context.Canceled)(guard.Do(ctx, "s", "k", succeed(&runs)))
	if runs != 0 || store.calls() != "" {
		t.Errorf("%d runs, calls %q", runs, store.calls())
	}
}

func TestAMissingStoreIsWarnedAboutOnce(t *testing.T) {
	t.Parallel()
	var log logBuffer
	guard := newGuard(t, dedupe.Config{Logger: log.logger()})
	runs := 0
	for range 3 {
		_, _ = guard.Do(t.Context(), "s", "k", succeed(&runs))
	}
	if runs != 1 {
		t.Errorf("%d runs", runs)
	}
	if got := log.count("level=WARN"); got != 1 || log.count("no Store is set") != 1 {
		t.Errorf("%d warnings, want 1", got)
	}
	var quiet logBuffer
	newGuard(t, dedupe.Config{Store: dedupe.NewMemory(dedupe.MemoryConfig{}), Logger: quiet.logger()})
	if quiet.count("") != 0 {
		t.Error("a Memory that was asked for is warned about")
	}
}

func TestNewReportsEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := dedupe.New(dedupe.Config{
		Store: newScripted(), TTL: -1, Lease: time.Microsecond, StoreTimeout: 20 * 365 * 24 * time.Hour, OnStoreError: 7,
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, field := range []string{"TTL", "Lease", "StoreTimeout", "OnStoreError"} {
		if !strings.Contains(err.Error(), "dedupe: config: "+field+": ") {
			t.Errorf("%s is not reported: %v", field, err)
		}
	}
}

func TestAMemoryDropsExpiredKeysAsItGrows(t *testing.T) {
	t.Parallel()
	now := time.Now()
	memory := dedupe.NewMemory(dedupe.MemoryConfig{Clock: func() time.Time { return now }})
	for i := range 100_000 {
		if _, err := memory.Reserve(t.Context(), dedupe.Key{ID: fmt.Sprint(i)}, "t", time.Second); err != nil {
			t.Fatal(err)
		}
		now = now.Add(10 * time.Millisecond) // a hundred keys are alive at a time
	}
	if got := memory.Len(); got > 2000 {
		t.Errorf("%d keys are kept, 100 are alive", got)
	}
}

func TestWhoWaitsInTheSameProcessRunsAfterAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		guard := newGuard(t, dedupe.Config{Store: newScripted()})
		fail := make(chan struct{})
		go guard.Do(t.Context(), "s", "k", func(context.Context) error { <-fail; return errFailed })
		synctest.Wait()
		runs := 0 // one at a time
		ran := make(chan bool, 10)
		for range cap(ran) {
			go func() {
				did, err := guard.Do(t.Context(), "s", "k", succeed(&runs))
				if err != nil {
					t.Error(err)
				}
				ran <- did
			}()
		}
		synctest.Wait()
		close(fail)
		did := 0
		for range cap(ran) {
			if <-ran {
				did++
			}
		}
		if runs != 1 || did != 1 {
			t.Errorf("%d runs, %d calls reported one", runs, did)
		}
	})
}

// The store is down, so that only the cache can know.
func TestARunThatEndsBetweenTwoLooksIsSeen(t *testing.T) {
	t.Parallel()
	now, runs := time.Now(), 0
	var guard *dedupe.Guard
	between := func() {}
	guard = newGuard(t, dedupe.Config{Store: down(), Clock: func() time.Time {
		do := between
		between = func() {}
		do()
		return now
	}})
	want(t, true, nil)(guard.Do(t.Context(), "s", "k", succeed(&runs)))
	now = now.Add(48 * time.Hour)
	between = func() { // after the cache was read, before the key is taken
		want(t, true, nil)(guard.Do(t.Context(), "s", "k", succeed(&runs)))
	}
	want(t, false, nil)(guard.Do(t.Context(), "s", "k", succeed(&runs)))
}
