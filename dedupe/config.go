package dedupe

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// maxDuration bounds TTL and lease, so that no end leaves the range of a column.
const maxDuration = 10 * 365 * 24 * time.Hour

// StoreErrorPolicy says what Do does when the store fails.
type StoreErrorPolicy uint8

const (
	// Run runs fn although nobody knows whether it ran before: a duplicate is
	// better than a loss or a standstill. The error is logged and counted.
	Run StoreErrorPolicy = iota
	// Fail returns a *StoreError: a standstill is better than a duplicate.
	Fail
)

// Config holds the settings of a Guard. The zero value works within one process.
type Config struct {
	// Store keeps the keys. Nil: a Memory of the guard's own, which other
	// processes do not see and a restart forgets; New says so in a warning. To
	// use a Memory on purpose, pass NewMemory.
	Store Store
	// TTL is how long a key is remembered, counted from the end of its run.
	// Default 24 h, at most ten years.
	TTL time.Duration
	// Lease is how long a key stays reserved after its process died. While fn
	// runs, the lease is extended at each third of it. Default 1 minute.
	Lease time.Duration
	// StoreTimeout bounds each call of the store. Default 5 s.
	StoreTimeout time.Duration
	// CacheSize is how many confirmed keys the guard keeps in memory, where a
	// duplicate costs no call of the store. Default 10,000. Negative: none.
	CacheSize int
	// OnStoreError is Run (the default) or Fail.
	OnStoreError StoreErrorPolicy
	// Logger receives store errors, at most one line in ten seconds, and lost
	// leases. Default: discard. The warning about a missing Store goes to
	// slog.Default then.
	Logger *slog.Logger
	// Clock replaces time.Now for the cache, for tests.
	Clock func() time.Time
}

func (c *Config) setDefaults() {
	if c.TTL == 0 {
		c.TTL = 24 * time.Hour
	}
	if c.Lease == 0 {
		c.Lease = time.Minute
	}
	if c.StoreTimeout == 0 {
		c.StoreTimeout = 5 * time.Second
	}
	if c.CacheSize == 0 {
		c.CacheSize = 10_000
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Store == nil {
		logger := c.Logger
		if logger == nil {
			logger = slog.Default()
		}
		logger.Warn("dedupe: no Store is set: keys are kept in memory, other processes do not see them and a restart forgets them",
			"remedy", "set Config.Store; pass dedupe.NewMemory where memory is meant")
		c.Store = NewMemory(MemoryConfig{Clock: c.Clock})
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// validate joins every problem.
func (c *Config) validate() error {
	var problems []error
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"TTL", c.TTL},
		{"Lease", c.Lease},
		{"StoreTimeout", c.StoreTimeout},
	} {
		if err := checkDuration(d.value); err != nil {
			problems = append(problems, fmt.Errorf("dedupe: config: %s: %w", d.field, err))
		}
	}
	if c.OnStoreError > Fail {
		problems = append(problems, fmt.Errorf("dedupe: config: OnStoreError: %d is neither Run nor Fail", c.OnStoreError))
	}
	return errors.Join(problems...)
}

// checkDuration accepts what every store can keep; the shortest unit is Redis's.
func checkDuration(d time.Duration) error {
	switch {
	case d < time.Millisecond:
		return fmt.Errorf("%v is less than a millisecond", d)
	case d > maxDuration:
		return fmt.Errorf("%v is more than ten years", d)
	}
	return nil
}
