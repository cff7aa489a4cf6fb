package inbox

import (
	"context"
	"time"

	"github.com/uptrace/bun/dialect/pgdialect"
)

// pulse is what a processor says of itself.
type pulse struct {
	id, host, process, names string
	pid, workers             int
	lapse                    time.Duration // after which it counts as crashed
	caution                  time.Duration // how long a crash makes the others careful
	gone                     []string      // processors that are known to be dead
}

// lifeline is what the heartbeat asks of a database.
type lifeline interface {
	// beat renews the row and notices crashes: it returns how many, and how long
	// to be careful.
	beat(ctx context.Context, q querier, p pulse) (noticed int64, careful time.Duration, err error)
	// predecessors returns the processors of this host that belong to other processes: id -> pid.
	predecessors(ctx context.Context, q querier, p pulse) (map[string]int, error)
	// farewell removes the row.
	farewell(ctx context.Context, q querier, id string) error
	// addMinute adds to the counters of the present minute.
	addMinute(ctx context.Context, q querier, counts map[string]tally) error
	// start writes down that c is about to be started, and keeps it for lease;
	// errNotClaimed.
	start(ctx context.Context, q querier, c *Claimed, lease time.Duration) error
	// unstart takes that back; nothing happens if c was settled.
	unstart(ctx context.Context, q querier, id int64, starts int) error
	// audit looks at the first messages of at most limit keys behind after, and
	// returns the keys where it is parked, and the last one it has seen.
	audit(ctx context.Context, q querier, after string, limit int) (stuck []string, last string, err error)
}

var (
	_ lifeline = (*postgres)(nil)
	_ lifeline = (*sqlite)(nil)
)

func (s *postgres) beat(ctx context.Context, q querier, p pulse) (noticed int64, careful time.Duration, err error) {
	if _, err := s.exec(ctx, q, postgresBeatAsync); err != nil {
		return 0, 0, err
	}
	_, err = s.exec(ctx, q, s.text(postgresBeat), p.id, p.host, p.pid, p.process, p.workers, p.names, p.lapse.Microseconds())
	if err != nil {
		return 0, 0, err
	}
	if p.gone == nil {
		p.gone = []string{}
	}
	result, err := s.exec(ctx, q, s.text(postgresNoticed), p.caution.Microseconds(), p.id, pgdialect.Array(p.gone))
	if err != nil {
		return 0, 0, err
	}
	if noticed, err = result.RowsAffected(); err != nil {
		return 0, 0, err
	}
	if _, err := s.exec(ctx, q, s.text(postgresForgetProcessors)); err != nil {
		return 0, 0, err
	}
	var seconds float64
	err = s.scan(ctx, q, &seconds, s.text(postgresCautious))
	return noticed, time.Duration(seconds * float64(time.Second)), err
}

type predecessor struct {
	ID  string
	Pid int
}

func (d *database) predecessors(ctx context.Context, q querier, p pulse) (map[string]int, error) {
	var rows []predecessor
	if err := d.scan(ctx, q, &rows, d.text(postgresPredecessors), p.host, p.process); err != nil {
		return nil, err
	}
	found := make(map[string]int, len(rows))
	for _, r := range rows {
		found[r.ID] = r.Pid
	}
	return found, nil
}

func (d *database) farewell(ctx context.Context, q querier, id string) error {
	_, err := d.exec(ctx, q, d.text(forgetProcessor), id)
	return err
}

func (s *postgres) addMinute(ctx context.Context, q querier, counts map[string]tally) error {
	if _, err := s.exec(ctx, q, postgresBeatAsync); err != nil {
		return err
	}
	n := len(counts)
	names := make([]string, 0, n)
	processed, failed, died := make([]int64, 0, n), make([]int64, 0, n), make([]int64, 0, n)
	for name, t := range counts {
		names, processed, failed, died = append(names, name), append(processed, t.processed), append(failed, t.failed), append(died, t.died)
	}
	_, err := s.exec(ctx, q, s.text(postgresMinute),
		pgdialect.Array(names), pgdialect.Array(processed), pgdialect.Array(failed), pgdialect.Array(died))
	if err == nil {
		_, err = s.exec(ctx, q, s.text(postgresForgetMinutes))
	}
	return err
}

func (s *postgres) start(ctx context.Context, q querier, c *Claimed, lease time.Duration) error {
	return s.execCount(ctx, q, 1, s.text(postgresStart), lease.Microseconds(), c.ID, c.starts)
}

func (s *postgres) unstart(ctx context.Context, q querier, id int64, starts int) error {
	_, err := s.exec(ctx, q, s.text(postgresUnstart), id, starts)
	return err
}

func (d *database) audit(ctx context.Context, q querier, after string, limit int) (stuck []string, last string, err error) {
	var rows []struct {
		Key   string
		State int
	}
	if err := d.scan(ctx, q, &rows, d.text(auditKeys), after, limit); err != nil {
		return nil, "", err
	}
	for _, r := range rows {
		last = r.Key
		if r.State == stateParked {
			stuck = append(stuck, r.Key)
		}
	}
	if len(rows) < limit {
		last = "" // from the beginning
	}
	return stuck, last, nil
}

func (s *sqlite) beat(ctx context.Context, q querier, p pulse) (noticed int64, careful time.Duration, err error) {
	now := s.processClock()
	_, err = s.exec(ctx, q, s.text(sqliteBeat), p.id, p.host, p.pid, p.process, p.workers, p.names,
		sqliteTime(now), sqliteTime(now), sqliteTime(now.Add(p.lapse)))
	if err != nil {
		return 0, 0, err
	}
	args := []any{sqliteTime(now.Add(p.caution)), p.id, sqliteTime(now)}
	for _, id := range p.gone {
		args = append(args, id)
	}
	result, err := s.exec(ctx, q, placeholders(s.text(sqliteNoticed), 1, len(p.gone)), args...)
	if err != nil {
		return 0, 0, err
	}
	if noticed, err = result.RowsAffected(); err != nil {
		return 0, 0, err
	}
	if _, err := s.exec(ctx, q, s.text(sqliteForgetProcessors), sqliteTime(now.AddDate(0, 0, -1))); err != nil {
		return 0, 0, err
	}
	var text string
	if err := s.scan(ctx, q, &text, s.text(sqliteCautious)); err != nil || text == "" {
		return noticed, 0, err
	}
	until, err := parseSQLiteTime(text)
	return noticed, until.Sub(now), err
}

func (s *sqlite) addMinute(ctx context.Context, q querier, counts map[string]tally) error {
	minute := s.processClock().UTC().Truncate(time.Minute)
	for name, t := range counts {
		if _, err := s.exec(ctx, q, s.text(sqliteMinute), sqliteTime(minute), name, t.processed, t.failed, t.died); err != nil {
			return err
		}
	}
	_, err := s.exec(ctx, q, s.text(sqliteForgetMinutes), sqliteTime(minute.AddDate(0, 0, -1)))
	return err
}

func (s *sqlite) start(ctx context.Context, q querier, c *Claimed, lease time.Duration) error {
	return s.execCount(ctx, q, 1, s.text(sqliteStart), sqliteTime(s.processClock().Add(lease)), c.ID, c.starts)
}

func (s *sqlite) unstart(ctx context.Context, q querier, id int64, starts int) error {
	_, err := s.exec(ctx, q, s.text(sqliteUnstart), sqliteTime(s.processClock()), id, starts)
	return err
}
