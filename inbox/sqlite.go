package inbox

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// sqlite is the store on SQLite 3.38 or newer. The write lock of the database
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

// bound runs one of the statements whose text is always the same: the driver binds
// the arguments, and it stays prepared.
func (s *sqlite) bound(ctx context.Context, q querier, dest any, query string, args ...any) error {
	return s.scan(ctx, binding{querier: s.prepared.on(q), args: args}, dest, query)
}

// boundCount is bound for a statement that has to change exactly want rows.
func (s *sqlite) boundCount(ctx context.Context, q querier, want int, query string, args ...any) error {
	result, err := s.exec(ctx, binding{querier: s.prepared.on(q), args: args}, query)
	return counted(result, err, want)
}

// jsonArray is a list as one argument, for json_each. Names and keys are valid UTF-8.
func jsonArray(values []string) (string, error) {
	if values == nil {
		return "[]", nil
	}
	list, err := json.Marshal(values)
	return string(list), err
}

func (s *sqlite) add(ctx context.Context, q querier, rows []row, _ bool) ([]int64, error) {
	now := s.processClock()
	args := make([]any, 0, 8*len(rows))
	for i := range rows {
		r := &rows[i]
		args = append(args, r.Source, r.MessageID, r.Name, r.orderingKey, r.payload, blobOrNull(r.fingerprint), r.metadata, sqliteTime(now))
	}
	var inserted []struct {
		ID        int64
		Source    string
		MessageID string
		Name      string
	}
	var err error
	if len(rows) == 1 {
		err = s.bound(ctx, q, &inserted, s.text(sqliteInsertOne), args...)
	} else {
		err = s.scan(ctx, q, &inserted, placeholders(s.text(sqliteInsert), 8, len(rows)), args...)
	}
	if err != nil {
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
	if len(rows) == 1 {
		return out, s.boundCount(ctx, q, 1, s.text(sqliteQueueOne), queue...)
	}
	_, err = s.exec(ctx, q, placeholders(s.text(sqliteQueue), 4, len(queue)/4), queue...)
	return out, err
}

// blobOrNull is NULL for no bytes, which drivers make of nil or do not.
func blobOrNull(b []byte) any {
	if len(b) == 0 {
		return nil
	}
	return b
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
	keys, err := jsonArray(without)
	if err != nil {
		return nil, err
	}
	var claimed []*Claimed
	for _, m := range marks {
		if limit == len(claimed) {
			break
		}
		more, err := s.claimedRows(ctx, s.prepared.on(q), s.text(sqliteClaim), m.name, now, m.name, keys, limit-len(claimed))
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
	claimed, err := s.claimedRows(ctx, s.prepared.on(q), s.text(sqliteClaimOne), id, sqliteTime(s.processClock()), starts)
	if err != nil || len(claimed) == 0 {
		return nil, err
	}
	return claimed[0], nil
}

func (s *sqlite) processed(ctx context.Context, q querier, claimed []*Claimed) error {
	n := len(claimed)
	list := make([]int64, n)
	for i, c := range claimed {
		list[i] = c.ID
	}
	ids := "[" + string(appendIDs(nil, list)) + "]"
	if err := s.boundCount(ctx, q, n, s.text(sqliteDelete), ids); err != nil {
		return err
	}
	return s.boundCount(ctx, q, n, s.text(sqliteProcessed), sqliteTime(s.processClock()), ids)
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
	list, err := jsonArray(names)
	if err != nil {
		return false, err
	}
	var due bool
	err = s.bound(ctx, s.db.DB, &due, s.text(sqliteDue), list, sqliteTime(s.processClock()))
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
