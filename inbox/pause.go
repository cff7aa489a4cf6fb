package inbox

import (
	"context"
	"fmt"
	"time"
)

const (
	pauseName   = `INSERT INTO {pauses} (name, actor, paused_at) VALUES (?, ?, {clock}) ON CONFLICT (name) DO NOTHING`
	resumeName  = `DELETE FROM {pauses} WHERE name = ?`
	pausedNames = `SELECT name, actor, paused_at FROM {pauses} ORDER BY name`
)

// PausedName is a name whose messages wait until it is resumed.
type PausedName struct {
	Name     string
	Actor    string // see WithActor; empty when nobody was named
	PausedAt time.Time
}

// Pause keeps all processors from starting messages of a name, from their next
// claim on: what is running finishes. Accepting goes on. Former names of the same
// type are paused with it. A name need not be registered here. Pausing a name that is
// paused changes nothing.
func (r *Repository) Pause(ctx context.Context, name string) error {
	return r.setPaused(ctx, "pause", name, func(ctx context.Context, tx querier, name string) (int64, error) {
		result, err := r.exec(ctx, tx, r.both(pauseName), name, cleanText(actorOf(ctx)))
		if err != nil {
			return 0, err
		}
		return result.RowsAffected()
	})
}

// Resume ends a Pause. Processors go on within a poll. A name that is not paused
// is no error.
func (r *Repository) Resume(ctx context.Context, name string) error {
	return r.setPaused(ctx, "resume", name, func(ctx context.Context, tx querier, name string) (int64, error) {
		result, err := r.exec(ctx, tx, r.both(resumeName), name)
		if err != nil {
			return 0, err
		}
		return result.RowsAffected()
	})
}

// setPaused changes all names of a registration. The observer hears of it when
// something has changed.
func (r *Repository) setPaused(ctx context.Context, action, name string, set func(ctx context.Context, tx querier, name string) (int64, error)) error {
	if err := checkIdentifier(name, r.config.MaxIdentifier, false); err != nil {
		return fmt.Errorf("inbox: %s: name: %w", action, err)
	}
	names := []string{name}
	if reg := r.names.forName(name); reg != nil {
		names = reg.names()
	}
	var changed int64
	err := r.acting(ctx, func(ctx context.Context, tx querier) error {
		changed = 0
		for _, name := range names {
			n, err := set(ctx, tx, name)
			if err != nil {
				return err
			}
			changed += n
		}
		return nil
	})
	if err != nil {
		return r.acted(action, err)
	}
	if changed > 0 {
		r.audit(ctx, action, changed, Info{Identity: Identity{Name: name}})
	}
	r.wake()
	return nil
}

// Paused returns the names that are paused, in order.
func (r *Repository) Paused(ctx context.Context) ([]PausedName, error) {
	paused, err := r.paused(ctx, r.db.DB)
	return paused, r.wrap("paused", err)
}

func (r *Repository) paused(ctx context.Context, q querier) ([]PausedName, error) {
	var rows []struct {
		Name     string
		Actor    string
		PausedAt moment
	}
	if err := r.scan(ctx, q, &rows, r.both(pausedNames)); err != nil {
		return nil, err
	}
	paused := make([]PausedName, len(rows))
	for i, row := range rows {
		paused[i] = PausedName{Name: row.Name, Actor: row.Actor, PausedAt: row.PausedAt.Time}
	}
	return paused, nil
}
