package inbox

import (
	"context"
	"slices"
	"time"
)

const (
	// exactCountBytes is how large the messages table may be before Stats trusts
	// the planner's estimate instead of counting.
	exactCountBytes = 64 << 20
	// sourceSample is how many unfinished messages are counted per source.
	sourceSample = 5_000
	// sourceMost is how many sources are told apart.
	sourceMost = 100
)

// Stats says what is in the inbox.
type Stats struct {
	Pending int64 // including retries, and messages due later
	Dead    int64 // without the discarded ones
	// Processed is an estimate, and Estimated is true, when the table is so
	// large that counting it would hurt. It counts the discarded ones too.
	Processed int64
	Estimated bool
	// Failing are the pending messages that have failed at least once.
	Failing int64
	// Parked are the pending messages that wait for an earlier one of their
	// ordering key, as far as the database knows.
	Parked int64
	// ParkedKeys is how many ordering keys a dead message holds up.
	ParkedKeys int64
	// OldestDue is how long the oldest due message has been waiting. Parked ones
	// are left out: they wait for another.
	OldestDue time.Duration
	// Names holds the unfinished messages per stored name.
	Names map[string]NameStats
	// Sources holds the unfinished messages per source: of the newest 5,000 if
	// there are more, and SourcesPartial is true; the 100 largest sources.
	Sources        map[string]SourceStats
	SourcesPartial bool
	// Paused are the names that are paused, in order.
	Paused []string
	// Unclaimed are the names of pending messages that no running processor
	// serves, in order: Run, or Drain while it drains.
	Unclaimed []string
}

// NameStats counts the unfinished messages of one name.
type NameStats struct {
	Pending   int64
	Dead      int64
	Failing   int64
	Parked    int64
	OldestDue time.Duration // see Stats
	// Registered is false for a name that this process does not know; such
	// messages wait for a processor that does.
	Registered bool
	Paused     bool
	// Claimed is true when a running processor serves the name.
	Claimed bool
}

// SourceStats counts the unfinished messages of one source.
type SourceStats struct {
	Pending int64
	Dead    int64
}

// Stats counts the messages. It reads the queue and, where that is cheap, the
// messages table.
func (r *Repository) Stats(ctx context.Context) (Stats, error) {
	var stats Stats
	err := r.reading(ctx, func(ctx context.Context, q querier) (err error) {
		stats, err = r.stats(ctx, q)
		return err
	})
	if err != nil {
		return Stats{}, r.wrap("stats", err)
	}
	return stats, nil
}

// addFleet notes what is paused and what nobody claims.
func (s *Stats) addFleet(names *NameMap, paused []string, processors []ProcessorInfo) {
	s.Paused = paused
	for name, n := range s.Names {
		n.Registered = names.forName(name) != nil
		n.Paused = slices.Contains(paused, name)
		n.Claimed = slices.ContainsFunc(processors, func(p ProcessorInfo) bool {
			return p.Alive && slices.Contains(p.Names, name)
		})
		if n.Pending > 0 && !n.Claimed {
			s.Unclaimed = append(s.Unclaimed, name)
		}
		s.Names[name] = n
	}
	slices.Sort(s.Unclaimed)
}

// ParkedKey is an ordering key that a dead message holds up.
type ParkedKey struct {
	Key string
	// ID and Identity are those of the first dead message.
	ID int64
	Identity
	LastError string
	Since     time.Time // when it died
	Dead      int64     // how many dead messages hold the key up
	Waiting   int64     // how many messages wait behind the first, up to 1,000
}

// waitingMost is how far followers are counted.
const waitingMost = 1000

// ParkedKeys returns at most limit ordering keys that a dead message holds up,
// those with the earliest first.
func (r *Repository) ParkedKeys(ctx context.Context, limit int) ([]ParkedKey, error) {
	var rows []struct {
		Key       string
		ID        int64
		Dead      int64
		Source    string
		MessageID string
		Name      string
		LastError string
		Since     moment
		Waiting   int64
	}
	err := r.reading(ctx, func(ctx context.Context, q querier) error {
		return r.scan(ctx, q, &rows, r.both(parkedKeys), waitingMost, max(limit, 0))
	})
	if err != nil {
		return nil, r.wrap("parked keys", err)
	}
	keys := make([]ParkedKey, len(rows))
	for i, row := range rows {
		keys[i] = ParkedKey{
			Key: row.Key, ID: row.ID, Identity: Identity{row.Source, row.MessageID, row.Name},
			LastError: row.LastError, Since: row.Since.Time, Dead: row.Dead, Waiting: row.Waiting,
		}
	}
	return keys, nil
}

// DeadError is a group of dead messages of one name with one error.
type DeadError struct {
	Name  string
	Error string // the first 200 characters; what follows may differ
	Count int64
	// ExampleID is the newest of them.
	ExampleID   int64
	First, Last time.Time // when the first and the last of them died
}

const (
	deadSample = 10_000 // dead messages that are grouped, at most
	deadPrefix = 200    // characters of an error that make a group
)

// DeadErrors groups the dead messages by name and error, the largest groups
// first, at most limit of them. Of more than 10,000 dead messages only the newest
// are counted. Discarded ones are left out.
func (r *Repository) DeadErrors(ctx context.Context, limit int) ([]DeadError, error) {
	var rows []struct {
		Name    string
		Error   string
		Count   int64
		Example int64
		First   moment
		Last    moment
	}
	err := r.reading(ctx, func(ctx context.Context, q querier) error {
		return r.scan(ctx, q, &rows, r.both(deadErrors), deadPrefix, deadSample, deadPrefix, max(limit, 0))
	})
	if err != nil {
		return nil, r.wrap("dead errors", err)
	}
	groups := make([]DeadError, len(rows))
	for i, row := range rows {
		groups[i] = DeadError{
			Name: row.Name, Error: row.Error, Count: row.Count, ExampleID: row.Example,
			First: row.First.Time, Last: row.Last.Time,
		}
	}
	return groups, nil
}
