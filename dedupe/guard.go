package dedupe

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// cleanupBatch bounds how long one statement of CleanupExpired holds its locks.
const cleanupBatch = 1000

// Guard runs a function once per key. It is safe for concurrent use; make one
// per process and store.
type Guard struct {
	config Config
	store  Store
	cache  *lru.Cache[Key, time.Time] // confirmed keys and their ends; nil: off
	calls  calls
	counters
}

// New returns a guard. The error joins every problem of the config.
func New(config Config) (*Guard, error) {
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	g := &Guard{config: config, store: config.Store}
	if config.CacheSize > 0 {
		cache, err := lru.New[Key, time.Time](config.CacheSize)
		if err != nil {
			return nil, fmt.Errorf("dedupe: config: CacheSize: %w", err)
		}
		g.cache = cache
	}
	return g, nil
}

// Do runs fn unless (scope, key) is remembered, and remembers it for Config.TTL
// when fn returns nil. ran reports whether this call ran fn; without an error,
// false means that somebody has run it before.
//
// Scope and key are at most 256 bytes of valid UTF-8 without control characters;
// the scope may be empty. The key is reserved while fn runs and freed when fn
// fails, panics or calls runtime.Goexit. Calls for a key that is being run wait,
// in this process and in others, until that run has ended or their ctx has: after
// a success they report false, after a failure one of them runs. The context of
// fn ends with ctx, and with cause [ErrLeaseLost] when the reservation is lost.
//
// The error is fn's own; ctx.Err() when ctx ended before fn began; a *KeyError;
// ErrNested; or, with OnStoreError Fail, a *StoreError. ran and a *StoreError
// together mean that fn has succeeded, and that only this process remembers it.
func (g *Guard) Do(ctx context.Context, scope, key string, fn func(ctx context.Context) error) (ran bool, err error) {
	return g.DoFor(ctx, scope, key, g.config.TTL, fn)
}

// DoFor is Do with a TTL of its own: a millisecond to ten years.
func (g *Guard) DoFor(ctx context.Context, scope, key string, ttl time.Duration, fn func(ctx context.Context) error) (ran bool, err error) {
	id := Key{scope, key}
	if g.cached(id) {
		return g.duplicate()
	}
	if err := id.check(); err != nil {
		return false, err
	}
	if err := checkDuration(ttl); err != nil {
		return false, fmt.Errorf("dedupe: ttl: %w", err)
	}
	id = id.clone()
	for {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		call, first := g.calls.join(id)
		if first {
			return g.lead(ctx, id, ttl, call, fn)
		}
		if isNested(ctx, g, id) {
			return false, ErrNested
		}
		select {
		case <-call.ended:
			if call.done {
				return g.duplicate()
			}
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// lead is Do for the one call of this process that talks to the store.
func (g *Guard) lead(ctx context.Context, id Key, ttl time.Duration, call *call, fn func(context.Context) error) (ran bool, err error) {
	defer g.calls.leave(id, call)
	if g.cached(id) { // since the first look
		call.done = true
		return g.duplicate()
	}
	r := &run{guard: g, key: id, token: rand.Text(), ttl: ttl}
	found, err := r.acquire(ctx)
	if err != nil {
		return false, err
	}
	if found.State == Confirmed {
		g.remember(id, g.config.Clock().Add(found.Remaining))
		call.done = true
		return g.duplicate()
	}
	err = r.do(ctx, fn)
	call.done = r.succeeded
	return true, err
}

// cached reports whether the guard itself remembers the key, and counts it.
func (g *Guard) cached(id Key) bool {
	if g.cache == nil {
		return false
	}
	end, ok := g.cache.Get(id)
	if !ok || !g.config.Clock().Before(end) {
		return false
	}
	g.cacheHits.Add(1)
	return true
}

func (g *Guard) remember(id Key, end time.Time) {
	if g.cache != nil {
		g.cache.Add(id, end)
	}
}

func (g *Guard) duplicate() (ran bool, err error) {
	g.duplicates.Add(1)
	return false, nil
}

// CleanupExpired deletes keys whose time has passed from the guard's memory and
// from the store, in bounded batches, until none is left or ctx ends. It returns
// how many the store deleted; stores that forget by themselves (Redis) delete
// none. Call it now and then, from one process or several.
func (g *Guard) CleanupExpired(ctx context.Context) (deleted int, err error) {
	g.dropExpired()
	cleaner, ok := g.store.(Cleaner)
	if !ok {
		return 0, nil
	}
	for {
		if err := ctx.Err(); err != nil {
			return deleted, err
		}
		n, err := cleaner.CleanupExpired(ctx, cleanupBatch)
		deleted += n
		if err != nil {
			if ctx.Err() != nil {
				return deleted, ctx.Err()
			}
			return deleted, g.storeFailed(ctx, "clean up", err)
		}
		if n < cleanupBatch {
			return deleted, nil
		}
	}
}

// dropExpired frees the memory of expired keys. A key that is confirmed again
// between the look and the removal costs one question to the store.
func (g *Guard) dropExpired() {
	if g.cache == nil {
		return
	}
	now := g.config.Clock()
	for _, id := range g.cache.Keys() {
		if end, ok := g.cache.Peek(id); ok && !now.Before(end) {
			g.cache.Remove(id)
		}
	}
}
