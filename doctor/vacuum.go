package doctor

import (
	"context"
	"fmt"
	"time"
)

const (
	// overdue is how many times the threshold of autovacuum has to be passed.
	overdue = 5
	// deadLeast is how many dead rows are worth a word.
	deadLeast = 10_000
)

// vacuum looks at the dead rows of both tables.
func (e *examination) vacuum(ctx context.Context) error {
	var rows []struct {
		Name      string
		Live      int64
		Dead      int64
		Vacuumed  *time.Time
		Analyzed  *time.Time
		Enabled   bool
		Threshold float64
	}
	if err := e.scan(ctx, &rows, postgresVacuum, e.tables.Messages, e.tables.Queue); err != nil {
		return err
	}
	var all, bloated, off []string
	for _, r := range rows {
		share := 0.0
		if r.Live+r.Dead > 0 {
			share = 100 * float64(r.Dead) / float64(r.Live+r.Dead)
		}
		line := fmt.Sprintf("%s: %d live, %d dead rows (%.0f %%), last vacuum %s, last analyze %s",
			r.Name, r.Live, r.Dead, share, at(r.Vacuumed), at(r.Analyzed))
		all = append(all, line)
		if r.Dead >= deadLeast && float64(r.Dead) > overdue*r.Threshold {
			bloated = append(bloated, line)
		}
		if !r.Enabled {
			off = append(off, r.Name)
		}
	}
	if len(off) > 0 {
		e.find("autovacuum-off", Warning, "Autovacuum is off for tables of the inbox", "ALTER TABLE NAME RESET (autovacuum_enabled).", off...)
	}
	if len(bloated) > 0 {
		e.find("dead-tuples", Warning, "Vacuum does not keep up",
			"Look for what holds it back: old-snapshot, prepared-transactions, replication-slots. Else give autovacuum more to work with: autovacuum_vacuum_cost_limit, autovacuum_max_workers.",
			bloated...)
		return nil
	}
	e.find("tables", Info, "Dead rows are within bounds", "", all...)
	return nil
}
