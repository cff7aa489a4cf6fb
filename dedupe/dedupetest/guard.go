package dedupetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/dedupe"
)

var errFailed = errors.New("as told")

// newGuard stands for one process in front of the store.
func newGuard(t *testing.T, store dedupe.Store, config dedupe.Config) *dedupe.Guard {
	t.Helper()
	config.Store = store
	config.OnStoreError = dedupe.Fail
	if config.StoreTimeout == 0 {
		config.StoreTimeout = patience
	}
	guard, err := dedupe.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return guard
}

// wantRan calls Do with a function that succeeds.
func wantRan(t *testing.T, guard *dedupe.Guard, id string, want bool) {
	t.Helper()
	calls := 0
	ran, err := guard.Do(patient(t), "scope", id, func(context.Context) error { calls++; return nil })
	if err != nil {
		t.Fatalf("%q: %v", id, err)
	}
	if ran != want || calls == 1 != want {
		t.Fatalf("%q: ran %v with %d calls, want %v", id, ran, calls, want)
	}
}

var guardCases = []Case{
	{
		"the same key three times runs once",
		"The first call runs, the others report that they did not; other keys run.",
		func(t *testing.T, store dedupe.Store) {
			guard := newGuard(t, store, dedupe.Config{})
			wantRan(t, guard, "a", true)
			wantRan(t, guard, "a", false)
			wantRan(t, guard, "a", false)
			wantRan(t, guard, "b", true)
			wantRan(t, guard, "c", true)
			stats := guard.Stats()
			want := dedupe.Stats{Runs: 3, Duplicates: 2, CacheHits: 2, CacheSize: 3}
			if stats != want {
				t.Errorf("stats %+v, want %+v", stats, want)
			}
		},
	},
	{
		"an empty cache asks the store",
		"A key is remembered across a restart, and after its eviction from the cache.",
		func(t *testing.T, store dedupe.Store) {
			guard := newGuard(t, store, dedupe.Config{CacheSize: 2})
			for i := range 5 {
				wantRan(t, guard, fmt.Sprint(i), true)
			}
			for i := range 5 {
				wantRan(t, guard, fmt.Sprint(i), false)
			}
			if stats := guard.Stats(); stats.CacheHits == stats.Duplicates || stats.CacheSize != 2 {
				t.Errorf("nothing was evicted: %+v", stats)
			}
			restarted := newGuard(t, store, dedupe.Config{})
			wantRan(t, restarted, "0", false)
			if stats := restarted.Stats(); stats.CacheHits != 0 || stats.CacheSize != 1 {
				t.Errorf("stats %+v", stats)
			}
			wantRan(t, restarted, "0", false)
			if stats := restarted.Stats(); stats.CacheHits != 1 {
				t.Errorf("the answer of the store was not kept: %+v", stats)
			}
		},
	},
	{
		"an expired key runs again",
		"After the TTL of the call the key runs again, in this process and in others.",
		func(t *testing.T, store dedupe.Store) {
			for _, id := range []string{"same process", "another process"} {
				guard := newGuard(t, store, dedupe.Config{})
				do := func() (ran bool) {
					ran, err := guard.DoFor(t.Context(), "scope", id, short, func(context.Context) error { return nil })
					if err != nil {
						t.Fatal(err)
					}
					return ran
				}
				if !do() {
					t.Fatalf("%s: the first call did not run", id)
				}
				if id == "another process" {
					guard = newGuard(t, store, dedupe.Config{})
				}
				eventually(t, "the key runs again", do)
			}
		},
	},
	{
		"a run that failed is not remembered",
		"After an error, a panic or runtime.Goexit the key is free at once, in every process.",
		func(t *testing.T, store dedupe.Store) {
			guard, other := newGuard(t, store, dedupe.Config{Lease: long}), newGuard(t, store, dedupe.Config{})
			for name, end := range endings {
				end(t, guard, name)
				wantRan(t, other, name, true)
				wantRan(t, guard, name, false)
			}
			if stats := guard.Stats(); stats.Runs != int64(len(endings)) || stats.LeasesLost != 0 {
				t.Errorf("stats %+v", stats)
			}
		},
	},
	{
		"fifty calls in five processes run once",
		"However many call for one key at once, one runs and the others report that they did not.",
		func(t *testing.T, store dedupe.Store) {
			var runs, ran atomic.Int64
			var all sync.WaitGroup
			ctx := patient(t)
			for range 5 {
				guard := newGuard(t, store, dedupe.Config{Lease: long})
				for range 10 {
					all.Go(func() {
						did, err := guard.Do(ctx, "scope", "a", func(context.Context) error {
							runs.Add(1)
							time.Sleep(short) // for the others to find it running
							return nil
						})
						if err != nil {
							t.Error(err)
						}
						if did {
							ran.Add(1)
						}
					})
				}
			}
			all.Wait()
			if runs.Load() != 1 || ran.Load() != 1 {
				t.Errorf("%d runs, %d calls reported one", runs.Load(), ran.Load())
			}
		},
	},
	{
		"who waits runs when the first one failed",
		"A call that waits for a run, in this process or another, runs when that one fails, and only one of them does.",
		func(t *testing.T, store dedupe.Store) {
			first, other := newGuard(t, store, dedupe.Config{Lease: long}), newGuard(t, store, dedupe.Config{Lease: long})
			started, fail := make(chan struct{}), make(chan struct{})
			var all sync.WaitGroup
			ctx := patient(t)
			all.Go(func() {
				ran, err := first.Do(ctx, "scope", "a", func(context.Context) error {
					close(started)
					<-fail
					return errFailed
				})
				if !ran || !errors.Is(err, errFailed) {
					t.Errorf("got %v, %v", ran, err)
				}
			})
			<-started
			var runs, ran atomic.Int64
			for i := range 10 {
				guard := []*dedupe.Guard{first, other}[i%2]
				all.Go(func() {
					did, err := guard.Do(ctx, "scope", "a", func(context.Context) error { runs.Add(1); return nil })
					if err != nil {
						t.Error(err)
					}
					if did {
						ran.Add(1)
					}
				})
			}
			time.Sleep(short) // for some of them to wait
			if runs.Load() != 0 {
				t.Error("somebody ran beside the first one")
			}
			close(fail)
			all.Wait()
			if runs.Load() != 1 || ran.Load() != 1 {
				t.Errorf("%d runs, %d calls reported one", runs.Load(), ran.Load())
			}
		},
	},
	{
		"waiting ends with the context",
		"A call that waits for another process returns ctx.Err() when its context ends, and has not run.",
		func(t *testing.T, store dedupe.Store) {
			tester{t, store}.wantState(dedupe.Key{Scope: "scope", ID: "a"}, "another process", dedupe.Reserved)
			ctx, cancel := context.WithTimeout(t.Context(), short)
			defer cancel()
			guard := newGuard(t, store, dedupe.Config{})
			ran, err := guard.Do(ctx, "scope", "a", func(context.Context) error { t.Error("ran"); return nil })
			if ran || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, %v", ran, err)
			}
			if stats := guard.Stats(); stats.StoreErrors != 0 || stats.Duplicates != 0 {
				t.Errorf("stats %+v", stats)
			}
		},
	},
	{
		"a long run keeps its lease",
		"While fn runs the lease is extended, so that a run may take many leases.",
		func(t *testing.T, store dedupe.Store) {
			const lease = 1500 * time.Millisecond
			first, other := newGuard(t, store, dedupe.Config{Lease: lease}), newGuard(t, store, dedupe.Config{})
			var all sync.WaitGroup
			started := make(chan struct{})
			all.Go(func() {
				ran, err := first.Do(patient(t), "scope", "a", func(ctx context.Context) error {
					close(started)
					time.Sleep(2 * lease)
					return context.Cause(ctx)
				})
				if !ran || err != nil {
					t.Errorf("got %v, %v", ran, err)
				}
			})
			<-started
			wantRan(t, other, "a", false)
			all.Wait()
			if stats := first.Stats(); stats.LeasesLost != 0 {
				t.Errorf("stats %+v", stats)
			}
		},
	},
	{
		"a crash frees the key when its lease ends",
		"A reservation whose process is gone is waited for, and then run.",
		func(t *testing.T, store dedupe.Store) {
			tester{t, store}.reserve(dedupe.Key{Scope: "scope", ID: "a"}, "dead", 4*short)
			wantRan(t, newGuard(t, store, dedupe.Config{}), "a", true)
		},
	},
	{
		"the guard cleans up in batches",
		"CleanupExpired of the guard leaves what is still remembered.",
		func(t *testing.T, store dedupe.Store) {
			guard := newGuard(t, store, dedupe.Config{})
			for i := range 20 {
				if _, err := guard.DoFor(t.Context(), "scope", fmt.Sprint("short ", i), time.Millisecond, func(context.Context) error { return nil }); err != nil {
					t.Fatal(err)
				}
			}
			wantRan(t, guard, "a", true)
			time.Sleep(short)
			deleted, err := guard.CleanupExpired(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := store.(dedupe.Cleaner); ok && deleted != 20 {
				t.Errorf("deleted %d, want 20", deleted)
			}
			if stats := guard.Stats(); stats.CacheSize != 1 {
				t.Errorf("the cache holds %d keys, want 1", stats.CacheSize)
			}
			wantRan(t, newGuard(t, store, dedupe.Config{}), "a", false)
		},
	},
}
