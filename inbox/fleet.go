package inbox

import (
	"context"
	"encoding/json"
	"time"
)

const (
	allProcessors = `
SELECT id, host, pid, process, workers, names, started_at, seen_at, lapses_at, cautious_until, lapses_at > {now} AS alive
FROM {processors} ORDER BY started_at, id`

	minutesSince = `SELECT minute, name, processed, failed, died FROM {minutes} WHERE minute >= ? ORDER BY minute, name`
)

// ProcessorInfo is a processor whose Run or Drain has not ended cleanly: it
// runs, or it has crashed.
type ProcessorInfo struct {
	ID      string
	Host    string
	PID     int64
	Process string // tells two processes with one PID apart
	Workers int
	Names   []string // those it serves
	// Alive is false once its heartbeat has lapsed: it crashed, or cannot reach
	// the database.
	Alive     bool
	StartedAt time.Time
	SeenAt    time.Time
	LapsesAt  time.Time
	// CautiousUntil is set when its lapse was noticed: until then processors
	// start messages one by one.
	CautiousUntil time.Time
}

// Processors returns the processors that run, and those that lapsed within a
// day, in the order of their start. Process alone leaves no trace there.
func (r *Repository) Processors(ctx context.Context) ([]ProcessorInfo, error) {
	all, err := r.processors(ctx, r.db.DB)
	return all, r.wrap("processors", err)
}

func (r *Repository) processors(ctx context.Context, q querier) ([]ProcessorInfo, error) {
	var rows []struct {
		ID            string
		Host          string
		Pid           int64
		Process       string
		Workers       int
		Names         string
		StartedAt     moment
		SeenAt        moment
		LapsesAt      moment
		CautiousUntil moment
		Alive         bool
	}
	if err := r.scan(ctx, q, &rows, r.both(allProcessors)); err != nil {
		return nil, err
	}
	all := make([]ProcessorInfo, len(rows))
	for i, row := range rows {
		all[i] = ProcessorInfo{
			ID: row.ID, Host: row.Host, PID: row.Pid, Process: row.Process, Workers: row.Workers, Alive: row.Alive,
			StartedAt: row.StartedAt.Time, SeenAt: row.SeenAt.Time, LapsesAt: row.LapsesAt.Time, CautiousUntil: row.CautiousUntil.Time,
		}
		// What does not decode is a processor that serves nothing we know of.
		_ = json.Unmarshal([]byte(row.Names), &all[i].Names)
	}
	return all, nil
}

// Minute is what processors did with the messages of one name in one minute.
type Minute struct {
	Minute    time.Time // its beginning, in UTC
	Name      string
	Processed int64
	Failed    int64 // attempts that failed
	Died      int64 // messages that were given up
}

// Minutes returns the counters of the last minutes, oldest first, as far back as
// since says; they are kept for a day, and not exact after a crash. Minutes in
// which nothing happened are left out.
func (r *Repository) Minutes(ctx context.Context, since time.Duration) ([]Minute, error) {
	now, err := r.current(ctx, r.db.DB)
	if err != nil {
		return nil, r.wrap("minutes", err)
	}
	var rows []struct {
		Minute    moment
		Name      string
		Processed int64
		Failed    int64
		Died      int64
	}
	if err := r.scan(ctx, r.db.DB, &rows, r.both(minutesSince), r.timeText(now.Add(-since))); err != nil {
		return nil, r.wrap("minutes", err)
	}
	minutes := make([]Minute, len(rows))
	for i, row := range rows {
		minutes[i] = Minute{row.Minute.Time, row.Name, row.Processed, row.Failed, row.Died}
	}
	return minutes, nil
}
