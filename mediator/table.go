package mediator

import (
	"maps"
	"reflect"
	"sync"
	"sync/atomic"
)

// table holds what is bound to each key type; the zero V stands for nothing. Each change replaces the whole map, so that a
// look-up is one atomic load and never waits. The zero table is empty and ready to use.
type table[V any] struct {
	mu      sync.Mutex // held by writers only
	entries atomic.Pointer[map[reflect.Type]V]
}

func (t *table[V]) get(key reflect.Type) V {
	return t.snapshot()[key]
}

// change replaces what is bound to key by what edit makes of it. An error of edit is returned and changes nothing.
func (t *table[V]) change(key reflect.Type, edit func(V) (V, error)) error {
	t.mu.Lock()
	defer t.mu.Unlock()

	old := t.snapshot()
	v, err := edit(old[key])
	if err != nil {
		return err
	}
	entries := make(map[reflect.Type]V, len(old)+1)
	maps.Copy(entries, old)
	entries[key] = v
	t.entries.Store(&entries)
	return nil
}

// snapshot returns the current map, which is never written to again.
func (t *table[V]) snapshot() map[reflect.Type]V {
	if entries := t.entries.Load(); entries != nil {
		return *entries
	}
	return nil
}
