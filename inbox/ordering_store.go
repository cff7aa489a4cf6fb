package inbox

import (
	"context"
	"time"

	"github.com/uptrace/bun/dialect/pgdialect"
)

// parkAtOnce is how many messages of a key one statement takes out of the claim.
const parkAtOnce = 1000

func (s *postgres) earliest(ctx context.Context, q querier, keys []string, ids []int64) (map[string]int64, error) {
	var rows []struct {
		Key string
		ID  int64
	}
	if err := s.bound(ctx, q, &rows, s.text(postgresEarliest), textArray(keys), idArray(ids)); err != nil {
		return nil, err
	}
	first := make(map[string]int64, len(rows))
	for _, r := range rows {
		first[r.Key] = r.ID
	}
	return first, nil
}

func (s *postgres) park(ctx context.Context, q querier, from map[string]int64) ([]int64, error) {
	keys, starts := make([]string, 0, len(from)), make([]int64, 0, len(from))
	for key, id := range from {
		keys, starts = append(keys, key), append(starts, id)
	}
	if _, err := s.exec(ctx, q, postgresParkAsync); err != nil {
		return nil, err
	}
	if err := s.lockParking(ctx, q, keys); err != nil {
		return nil, err
	}
	var parked []int64
	err := s.scan(ctx, q, &parked, s.text(postgresPark), pgdialect.Array(keys), pgdialect.Array(starts), parkAtOnce)
	return parked, err
}

func (s *postgres) lockParking(ctx context.Context, q querier, keys []string) error {
	var locks int
	return s.bound(ctx, q, &locks, s.text(postgresParkLock), textArray(keys))
}

func (s *postgres) unpark(ctx context.Context, q querier, keys []string, limit int) (u unparked, err error) {
	if err := s.lockParking(ctx, q, keys); err != nil {
		return u, err
	}
	var rows []struct {
		Key  string
		Name string
		Due  time.Time
		ID   int64
	}
	if err := s.bound(ctx, q, &rows, limited(s.text(postgresUnpark), limit), textArray(keys)); err != nil {
		return u, err
	}
	for _, r := range rows {
		if r.ID == 0 {
			u.missed = append(u.missed, r.Key)
		} else {
			u.marks = append(u.marks, mark{r.Name, r.Due, r.ID})
		}
	}
	return u, nil
}

func (s *sqlite) earliest(ctx context.Context, q querier, keys []string, ids []int64) (map[string]int64, error) {
	first := make(map[string]int64, len(keys))
	template := placeholders(s.text(sqliteEarliest), 1, len(ids))
	for _, key := range keys {
		args := make([]any, 0, 1+len(ids))
		args = append(args, key)
		for _, id := range ids {
			args = append(args, id)
		}
		var found []int64
		if err := s.scan(ctx, q, &found, template, args...); err != nil {
			return nil, err
		}
		if len(found) > 0 {
			first[key] = found[0]
		}
	}
	return first, nil
}

func (s *sqlite) park(ctx context.Context, q querier, from map[string]int64) (parked []int64, err error) {
	for key, id := range from {
		var more []int64
		if err := s.scan(ctx, q, &more, s.text(sqlitePark), key, id, parkAtOnce, key, id); err != nil {
			return nil, err
		}
		parked = append(parked, more...)
	}
	return parked, nil
}

func (s *sqlite) unpark(ctx context.Context, q querier, keys []string, limit int) (u unparked, err error) {
	for _, key := range keys {
		var rows []struct {
			Name string
			Due  string
			ID   int64
		}
		if err := s.scan(ctx, q, &rows, s.text(sqliteUnpark), key, limit); err != nil {
			return u, err
		}
		for _, r := range rows {
			due, err := parseSQLiteTime(r.Due)
			if err != nil {
				return u, err
			}
			u.marks = append(u.marks, mark{r.Name, due, r.ID})
		}
	}
	return u, nil
}
