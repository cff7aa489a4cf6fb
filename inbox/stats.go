package inbox

import (
	"context"
	"time"
)

// exactCountBytes is how large the messages table may be before Stats trusts
// the planner's estimate instead of counting.
const exactCountBytes = 64 << 20

// Stats says what is in the inbox.
type Stats struct {
	Pending int64 // including retries, and messages due later
	Dead    int64
	// Processed is an estimate, and Estimated is true, when the table is so
	// large that counting it would hurt.
	Processed int64
	Estimated bool
	// OldestDue is how long the oldest due message has been waiting.
	OldestDue time.Duration
	// Names holds the unfinished messages per stored name.
	Names map[string]NameStats
}

// NameStats counts the unfinished messages of one name.
type NameStats struct {
	Pending int64
	Dead    int64
	// Registered is false for a name that this process does not know; such
	// messages wait for a processor that does.
	Registered bool
}

// Stats counts the messages. It reads the queue and, where that is cheap, the
// messages table.
func (r *Repository) Stats(ctx context.Context) (Stats, error) {
	stats, err := r.store.stats(ctx)
	if err != nil {
		return Stats{}, r.wrap("stats", err)
	}
	for name, n := range stats.Names {
		n.Registered = r.names.forName(name) != nil
		stats.Names[name] = n
	}
	return stats, nil
}

type countRow struct {
	Name  string
	State int
	Count int64
}

func newStats(counts []countRow, oldest time.Duration) Stats {
	stats := Stats{OldestDue: oldest, Names: map[string]NameStats{}}
	for _, c := range counts {
		n := stats.Names[c.Name]
		if c.State == statusDead {
			n.Dead += c.Count
			stats.Dead += c.Count
		} else {
			n.Pending += c.Count
			stats.Pending += c.Count
		}
		stats.Names[c.Name] = n
	}
	return stats
}

// setProcessed derives the processed ones: every message that is not queued.
func (s *Stats) setProcessed(messages int64) {
	s.Processed = max(messages-s.Pending-s.Dead, 0)
}
