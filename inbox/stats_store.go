package inbox

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// stats counts what is in the queue, and estimates or counts the rest.
func (r *Repository) stats(ctx context.Context, q querier) (Stats, error) {
	if r.dialect == postgresDialect {
		if _, err := r.exec(ctx, q, postgresCounting); err != nil {
			return Stats{}, err
		}
	}
	now, err := r.current(ctx, q)
	if err != nil {
		return Stats{}, err
	}
	var counts []countRow
	if err := r.scan(ctx, q, &counts, r.both(statsCounts)); err != nil {
		return Stats{}, err
	}
	stats := newStats(counts, now)
	if err := r.scan(ctx, q, &stats.ParkedKeys, r.both(statsParkedKeys)); err != nil {
		return Stats{}, err
	}
	if err := r.countSources(ctx, q, &stats); err != nil {
		return Stats{}, err
	}
	messages, estimated, err := r.store.messages(ctx, q)
	if err != nil {
		return Stats{}, err
	}
	stats.Processed, stats.Estimated = max(messages-stats.Pending-stats.Dead, 0), estimated
	paused, err := r.paused(ctx, q)
	if err != nil {
		return Stats{}, err
	}
	var names []string
	for _, p := range paused {
		names = append(names, p.Name)
	}
	processors, err := r.processors(ctx, q)
	if err != nil {
		return Stats{}, err
	}
	stats.addFleet(r.names, names, processors)
	return stats, nil
}

type countRow struct {
	Name    string
	State   int
	Count   int64
	Failing int64
	Oldest  moment
}

func newStats(counts []countRow, now time.Time) Stats {
	stats := Stats{Names: map[string]NameStats{}}
	for _, c := range counts {
		n := stats.Names[c.Name]
		if c.State == stateDead {
			n.Dead += c.Count
			stats.Dead += c.Count
		} else {
			n.Pending += c.Count
			stats.Pending += c.Count
			n.Failing += c.Failing
			stats.Failing += c.Failing
		}
		if c.State == stateParked {
			n.Parked += c.Count
			stats.Parked += c.Count
		}
		if !c.Oldest.IsZero() {
			n.OldestDue = max(n.OldestDue, now.Sub(c.Oldest.Time))
			stats.OldestDue = max(stats.OldestDue, n.OldestDue)
		}
		stats.Names[c.Name] = n
	}
	return stats
}

// countSources counts a bounded part of the queue by source.
func (r *Repository) countSources(ctx context.Context, q querier, stats *Stats) error {
	var rows []struct {
		Source string
		State  int
		Count  int64
	}
	if err := r.scan(ctx, q, &rows, r.both(statsSources), sourceSample); err != nil {
		return err
	}
	all := map[string]SourceStats{}
	for _, row := range rows {
		s := all[row.Source]
		if row.State == stateDead {
			s.Dead += row.Count
		} else {
			s.Pending += row.Count
		}
		all[row.Source] = s
	}
	stats.SourcesPartial = stats.Pending+stats.Dead > sourceSample || len(all) > sourceMost
	stats.Sources = largest(all)
	return nil
}

// largest leaves the sources out that are too many to show.
func largest(all map[string]SourceStats) map[string]SourceStats {
	if len(all) <= sourceMost {
		return all
	}
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(all[b].Pending+all[b].Dead, all[a].Pending+all[a].Dead), cmp.Compare(a, b))
	})
	for _, name := range names[sourceMost:] {
		delete(all, name)
	}
	return all
}

// messages counts or estimates all messages.
func (s *postgres) messages(ctx context.Context, q querier) (n int64, estimated bool, err error) {
	var size struct{ Estimate, Bytes int64 }
	if err := s.scan(ctx, q, &size, s.text(postgresMessages)); err != nil {
		return 0, false, err
	}
	if size.Bytes > exactCountBytes && size.Estimate > 0 {
		return size.Estimate, true, nil
	}
	err = s.scan(ctx, q, &n, s.text(postgresCountMessages))
	return n, false, err
}

// messages counts a table that is small, and takes the highest id for one that
// is not: SQLite keeps no estimate, and would read it all.
func (s *sqlite) messages(ctx context.Context, q querier) (n int64, estimated bool, err error) {
	var span int64
	if err := s.scan(ctx, q, &span, s.text(sqliteSpan)); err != nil {
		return 0, false, err
	}
	if span > exactCountRows {
		return span, true, nil
	}
	err = s.scan(ctx, q, &n, s.text(sqliteCountMessages))
	return n, false, err
}

// exactCountRows is how many ids SQLite counts one by one.
const exactCountRows = 1_000_000

const sqliteSpan = `SELECT COALESCE(max(id) - min(id) + 1, 0) FROM {messages}`
