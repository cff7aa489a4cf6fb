package inbox

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"sync"
)

// unparked is what became claimable again.
type unparked struct {
	marks  []mark
	missed []string // keys of which somebody holds a row that should have been
}

// missed are the ordering keys that a worker has to look after again.
type missed struct {
	mu   sync.Mutex
	keys map[string]bool
}

func (m *missed) add(keys []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.keys == nil {
		m.keys = map[string]bool{}
	}
	for _, key := range keys {
		m.keys[key] = true
	}
}

func (m *missed) take() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	keys := slices.Sorted(maps.Keys(m.keys))
	m.keys = nil
	return keys
}

// resume makes the next claim see messages that are claimable again. The worker
// that settled looks again by itself; others would only be in its way.
func (p *Processor) resume(u unparked) {
	p.marks.lower(u.marks)
	if len(u.missed) > 0 {
		p.missed.add(u.missed)
		p.wakeAfter(heldAgain)
	}
}

// unparkMissed tries again to make the next messages of missed keys claimable.
func (p *Processor) unparkMissed(ctx context.Context) error {
	keys := p.missed.take()
	if len(keys) == 0 {
		return nil
	}
	var u unparked
	err := p.repo.inTransaction(ctx, txOptions{isolation: sql.LevelReadCommitted}, func(ctx context.Context, tx querier) (err error) {
		u, err = p.repo.store.unpark(ctx, tx, keys, p.config.BatchSize)
		return err
	})
	if err != nil {
		u = unparked{missed: keys}
	}
	p.resume(u)
	return err
}
