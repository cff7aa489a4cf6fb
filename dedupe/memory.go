package dedupe

import (
	"context"
	"sync"
	"time"
)

// firstSweep is the number of keys at which a Memory first looks for expired ones.
const firstSweep = 1024

// MemoryConfig holds the settings of a Memory. The zero value is ready to use.
type MemoryConfig struct {
	// Clock replaces time.Now, for tests.
	Clock func() time.Time
}

// Memory is a Store for tests and for single processes: nobody else sees it, and
// a restart forgets it. It holds every key until its time has passed, and drops
// expired ones as it grows.
type Memory struct {
	now func() time.Time

	mu        sync.Mutex
	entries   map[Key]memoryEntry
	nextSweep int
}

type memoryEntry struct {
	token     string
	confirmed bool
	end       time.Time
}

var (
	_ Store   = (*Memory)(nil)
	_ Cleaner = (*Memory)(nil)
)

// NewMemory returns an empty Memory.
func NewMemory(config MemoryConfig) *Memory {
	if config.Clock == nil {
		config.Clock = time.Now
	}
	return &Memory{now: config.Clock, entries: map[Key]memoryEntry{}, nextSweep: firstSweep}
}

// Reserve takes a free key. See [Store].
func (m *Memory) Reserve(ctx context.Context, key Key, token string, lease time.Duration) (Reservation, error) {
	if err := ctx.Err(); err != nil {
		return Reservation{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	if e, ok := m.entries[key]; ok && e.end.After(now) {
		switch {
		case e.confirmed:
			return Reservation{Confirmed, e.end.Sub(now)}, nil
		case e.token != token:
			return Reservation{Held, e.end.Sub(now)}, nil
		}
	}
	if len(m.entries) >= m.nextSweep {
		m.sweep(now, len(m.entries))
		m.nextSweep = max(firstSweep, 2*len(m.entries))
	}
	m.entries[key] = memoryEntry{token: token, end: now.Add(lease)}
	return Reservation{Reserved, lease}, nil
}

// Confirm remembers the key. See [Store].
func (m *Memory) Confirm(ctx context.Context, key Key, token string, ttl time.Duration) (held bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	end := now.Add(ttl)
	e := m.entries[key]
	held = e.token == token && e.end.After(now)
	if e.confirmed && e.end.After(end) {
		return held, nil
	}
	m.entries[key] = memoryEntry{token: token, confirmed: true, end: end}
	return held, nil
}

// Release frees a key that token holds. See [Store].
func (m *Memory) Release(ctx context.Context, key Key, token string) (held bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.entries[key]
	if !ok || e.confirmed || e.token != token {
		return false, nil
	}
	delete(m.entries, key)
	return e.end.After(m.now()), nil
}

// CleanupExpired drops expired keys. See [Cleaner].
func (m *Memory) CleanupExpired(ctx context.Context, limit int) (deleted int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sweep(m.now(), limit), nil
}

// Len returns the number of keys, expired ones included.
func (m *Memory) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.entries)
}

func (m *Memory) sweep(now time.Time, limit int) (deleted int) {
	for key, e := range m.entries {
		if deleted == limit {
			break
		}
		if !e.end.After(now) {
			delete(m.entries, key)
			deleted++
		}
	}
	return deleted
}
