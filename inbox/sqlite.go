package inbox

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// sqlite is the store on SQLite 3.37 or newer. The write lock of the database
// stands in for row locks.
type sqlite struct{ *database }

const sqliteTimeFormat = "2006-01-02T15:04:05.000000Z"

// sqliteTime is the only way a time gets into SQLite.
func sqliteTime(t time.Time) string { return t.UTC().Format(sqliteTimeFormat) }

// placeholders fills in {rows} or {list} for n values.
func placeholders(template string, columns, n int) string {
	group := strings.TrimPrefix(strings.Repeat(", ?", columns), ", ")
	return strings.NewReplacer(
		"{rows}", strings.TrimPrefix(strings.Repeat(", ("+group+")", n), ", "),
		"{list}", strings.TrimPrefix(strings.Repeat(", ?", n), ", "),
	).Replace(template)
}

func (s *sqlite) add(ctx context.Context, q querier, rows []row, _ bool) ([]int64, error) {
	now := s.processClock()
	args := make([]any, 0, 8*len(rows))
	for i := range rows {
		r := &rows[i]
		args = append(args, r.Source, r.MessageID, r.Name, r.orderingKey, r.payload, r.fingerprint, r.metadata, sqliteTime(now))
	}
	var inserted []struct {
		ID        int64
		Source    string
		MessageID string
		Name      string
	}
	if err := s.scan(ctx, q, &inserted, placeholders(s.text(sqliteInsert), 8, len(rows)), args...); err != nil {
		return nil, err
	}
	ids := make(map[Identity]int64, len(inserted))
	for _, r := range inserted {
		ids[Identity{r.Source, r.MessageID, r.Name}] = r.ID
	}
	out := make([]int64, len(rows))
	queue := make([]any, 0, 4*len(inserted))
	for i := range rows {
		r := &rows[i]
		id := ids[r.Identity]
		if id == 0 {
			continue
		}
		delete(ids, r.Identity) // its twins further on were not stored
		out[i] = id
		due := now
		if r.due.After(now) {
			due = r.due
		}
		queue = append(queue, id, r.Name, r.orderingKey, sqliteTime(due))
	}
	if len(queue) == 0 {
		return out, nil
	}
	_, err := s.exec(ctx, q, placeholders(s.text(sqliteQueue), 4, len(queue)/4), queue...)
	return out, err
}

func (s *sqlite) existing(ctx context.Context, q querier, identities []Identity) (map[Identity][]byte, error) {
	args := make([]any, 0, 3*len(identities))
	for _, i := range identities {
		args = append(args, i.Source, i.MessageID, i.Name)
	}
	var found []foundRow
	err := s.scan(ctx, q, &found, placeholders(s.text(sqliteExisting), 3, len(identities)), args...)
	return foundRows(found), err
}

// claim asks for one name after the other: that is cheap inside the process.
// SQLite leaves no dead rows behind, so the marks are not needed.
func (s *sqlite) claim(ctx context.Context, q querier, marks []mark, without []string, limit int) ([]*Claimed, error) {
	now := sqliteTime(s.processClock())
	template := placeholders(s.text(sqliteClaim), 1, len(without))
	var claimed []*Claimed
	for _, m := range marks {
		if limit == len(claimed) {
			break
		}
		args := []any{m.name, now, m.name}
		for _, key := range without {
			args = append(args, key)
		}
		more, err := s.claimed(ctx, q, template, append(args, limit-len(claimed))...)
		if err != nil {
			return nil, err
		}
		claimed = append(claimed, more...)
	}
	slices.SortStableFunc(claimed, func(a, b *Claimed) int {
		if c := a.due.Compare(b.due); c != 0 {
			return c
		}
		return int(a.ID - b.ID)
	})
	return claimed, nil
}

func (s *sqlite) claimOne(ctx context.Context, q querier, id int64, starts int) (*Claimed, error) {
	claimed, err := s.claimed(ctx, q, s.text(sqliteClaimOne), id, sqliteTime(s.processClock()), starts)
	if err != nil || len(claimed) == 0 {
		return nil, err
	}
	return claimed[0], nil
}

func (s *sqlite) claimed(ctx context.Context, q querier, query string, args ...any) ([]*Claimed, error) {
	var rows []struct {
		claimedRow
		Due        string
		ReceivedAt string
	}
	if err := s.scan(ctx, q, &rows, query, args...); err != nil {
		return nil, err
	}
	claimed := make([]*Claimed, len(rows))
	for i := range rows {
		r := &rows[i]
		due, err := parseSQLiteTime(r.Due)
		if err != nil {
			return nil, fmt.Errorf("message %d: due time: %w", r.ID, err)
		}
		received, err := parseSQLiteTime(r.ReceivedAt)
		if err != nil {
			return nil, fmt.Errorf("message %d: received time: %w", r.ID, err)
		}
		claimed[i] = r.claimed(due, received)
	}
	return claimed, nil
}

func (s *sqlite) processed(ctx context.Context, q querier, claimed []*Claimed) error {
	n := len(claimed)
	ids := make([]any, n)
	for i, c := range claimed {
		ids[i] = c.ID
	}
	if err := s.execCount(ctx, q, n, placeholders(s.text(sqliteDelete), 1, n), ids...); err != nil {
		return err
	}
	args := append([]any{sqliteTime(s.processClock())}, ids...)
	return s.execCount(ctx, q, n, placeholders(s.text(sqliteProcessed), 1, n), args...)
}

func (s *sqlite) failed(ctx context.Context, q querier, processor string, failures []failure) error {
	for _, f := range failures {
		state := statusPending
		if f.dead {
			state = statusDead
		}
		err := s.execCount(ctx, q, 1, s.text(sqliteFailedQueue),
			f.attempts, f.interruptions, state, sqliteTime(s.processClock().Add(f.delay)), f.leaves,
			f.ID, f.Claimed.attempts, f.Claimed.interruptions)
		if err != nil {
			return err
		}
		if f.err == "" {
			continue
		}
		if err := s.execCount(ctx, q, 1, s.text(sqliteFailedMessage), f.attempts, state, f.err, f.ID); err != nil {
			return err
		}
		started := sqliteTime(s.processClock().Add(-f.duration))
		if _, err := s.exec(ctx, q, s.text(sqliteRemember), f.ID, started, f.duration.Microseconds(), processor, f.err, f.ID); err != nil {
			return err
		}
		if _, err := s.exec(ctx, q, s.text(sqliteForget), f.ID, f.ID); err != nil {
			return err
		}
	}
	return nil
}

// anyDue looks without the write lock, so that an idle processor leaves the
// file to the acceptors.
func (s *sqlite) anyDue(ctx context.Context, names []string) (bool, error) {
	args := make([]any, 0, len(names)+1)
	for _, name := range names {
		args = append(args, name)
	}
	args = append(args, sqliteTime(s.processClock()))
	var due bool
	err := s.scan(ctx, s.db.DB, &due, placeholders(s.text(sqliteDue), 1, len(names)), args...)
	return due, err
}

func (s *sqlite) receive(ctx context.Context, q querier, receipt row) (fresh bool, err error) {
	now := sqliteTime(s.processClock())
	result, err := s.exec(ctx, q, s.text(sqliteReceive), receipt.Source, receipt.MessageID, receipt.Name, receipt.metadata, now, now)
	return inserted(result, err)
}

func (s *sqlite) stamp(ctx context.Context, q querier, receipt row) error {
	return s.execCount(ctx, q, 1, s.text(sqliteStamp), sqliteTime(s.processClock()), receipt.metadata, receipt.Source, receipt.MessageID, receipt.Name)
}
