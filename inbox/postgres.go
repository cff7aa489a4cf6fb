package inbox

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/uptrace/bun/dialect/pgdialect"
)

// postgres is the store on PostgreSQL 13 or newer.
type postgres struct {
	*database
	sizes sizes
}

func (s *postgres) add(ctx context.Context, q querier, rows []row, bounded bool) ([]int64, error) {
	if len(rows) == 1 && !bounded {
		stored, err := s.boundRow(ctx, q, s.text(postgresAddOne), addOne(&rows[0])...)
		if err != nil || stored == nil {
			return []int64{0}, err
		}
		return parseIDs(stored[0])
	}
	dues := slices.ContainsFunc(rows, func(r row) bool { return !r.due.IsZero() })
	row, err := s.boundRow(ctx, q, s.text(postgresAdd[dues][bounded]), s.addMany(rows, dues)...)
	if err != nil {
		return nil, err
	}
	ids, err := parseIDs(row[0])
	if err != nil {
		return nil, err
	}
	stored, err := parseIDs(row[1])
	if err != nil {
		return nil, err
	}
	fresh := make(map[int64]bool, len(stored))
	for _, id := range stored {
		fresh[id] = true
	}
	for i, id := range ids {
		if !fresh[id] {
			ids[i] = 0
		}
	}
	return ids, nil
}

// parseIDs reads what string_agg has made of ids.
func parseIDs(list string) ([]int64, error) {
	ids := make([]int64, 0, 1+strings.Count(list, ","))
	for text := range strings.SplitSeq(list, ",") {
		if text == "" {
			continue
		}
		id, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func addOne(r *row) []any {
	return []any{
		r.Source, r.MessageID, r.Name, r.orderingKey, r.payload, fingerprintOf(r), r.metadata, dueOf(r),
	}
}

// addMany are the columns of rows; that of the due times only where there are any.
func (s *postgres) addMany(rows []row, dues bool) []any {
	n := len(rows)
	var texts [6][]string
	for column := range texts {
		texts[column] = make([]string, n)
	}
	payloads, fingerprints := make([][]byte, n), make([][]byte, n)
	for i := range rows {
		r := &rows[i]
		for column, text := range [...]string{r.Source, r.MessageID, r.Name, r.orderingKey, r.metadata, dueOf(r)} {
			texts[column][i] = text
		}
		payloads[i], fingerprints[i] = r.payload, fingerprintOf(r)
	}
	args := []any{
		s.texts(texts[0]), s.texts(texts[1]), s.texts(texts[2]), s.texts(texts[3]),
		s.blobs(payloads), s.blobs(fingerprints), s.texts(texts[4]),
	}
	if dues {
		args = append(args, s.texts(texts[5]))
	}
	return args
}

// fingerprintOf is never nil: every driver sends the empty one alike.
func fingerprintOf(r *row) []byte {
	if r.fingerprint == nil {
		return []byte{}
	}
	return r.fingerprint
}

func dueOf(r *row) string {
	if r.due.IsZero() {
		return ""
	}
	return r.due.UTC().Format(postgresTime)
}

func (s *postgres) existing(ctx context.Context, q querier, identities []Identity) (map[Identity][]byte, error) {
	n := len(identities)
	sources, ids, names := make([]string, n), make([]string, n), make([]string, n)
	for i, identity := range identities {
		sources[i], ids[i], names[i] = identity.Source, identity.MessageID, identity.Name
	}
	var found []foundRow
	err := s.scan(ctx, q, &found, s.text(postgresExisting), pgdialect.Array(sources), pgdialect.Array(ids), pgdialect.Array(names))
	return foundRows(found), err
}

// foundRow is a stored identity.
type foundRow struct {
	Source      string
	MessageID   string
	Name        string
	Fingerprint []byte
}

func foundRows(rows []foundRow) map[Identity][]byte {
	found := make(map[Identity][]byte, len(rows))
	for _, r := range rows {
		found[Identity{r.Source, r.MessageID, r.Name}] = r.Fingerprint
	}
	return found
}

func (s *postgres) claim(ctx context.Context, q querier, marks []mark, without []string, limit int) ([]*Claimed, error) {
	names, dues, ids := make([]string, len(marks)), make([]string, len(marks)), make([]int64, len(marks))
	for i, m := range marks {
		names[i], ids[i], dues[i] = m.name, m.id, "-infinity"
		if !m.due.IsZero() {
			dues[i] = m.due.UTC().Format(postgresTime)
		}
	}
	template, args := postgresClaim, []any{textArray(names), textArray(dues), idArray(ids)}
	if len(without) > 0 {
		template, args = postgresClaimWithout, append(args, textArray(without))
	}
	return s.claimed(ctx, q, limited(s.text(template), limit), args...)
}

// limited fills in how many rows a claim takes.
func limited(text string, limit int) string {
	return strings.ReplaceAll(text, "{limit}", strconv.Itoa(limit))
}

func (s *postgres) claimOne(ctx context.Context, q querier, id int64, starts int) (*Claimed, error) {
	claimed, err := s.claimed(ctx, q, s.text(postgresClaimOne), strconv.FormatInt(id, 10), strconv.Itoa(starts))
	if err != nil || len(claimed) == 0 {
		return nil, err
	}
	return claimed[0], nil
}

func (s *postgres) claimed(ctx context.Context, q querier, query string, args ...any) ([]*Claimed, error) {
	note, err := s.sizeNote(ctx, q)
	if err != nil {
		return nil, err
	}
	return s.claimedRows(ctx, q, query+note, append(slices.Clip(s.config.DriverArgs), args...)...)
}

func (s *postgres) processed(ctx context.Context, q querier, claimed []*Claimed) error {
	ids := make([]int64, len(claimed))
	for i, c := range claimed {
		ids[i] = c.ID
	}
	var settled int
	err := s.bound(ctx, q, &settled, s.text(postgresProcessed), idArray(ids), claimed[0].transaction, strconv.Itoa(len(ids)))
	if err == nil && settled != len(ids) {
		err = errNotClaimed
	}
	return err
}

func (s *postgres) failed(ctx context.Context, q querier, processor string, failures []failure) error {
	n := len(failures)
	ids, delays, durations, leaves := make([]int64, n), make([]int64, n), make([]int64, n), make([]bool, n)
	attempts, interruptions, newAttempts, newInterruptions := make([]int, n), make([]int, n), make([]int, n), make([]int, n)
	states, errs := make([]int, n), make([]string, n)
	transaction := ""
	for i, f := range failures {
		ids[i], delays[i], errs[i] = f.ID, f.delay.Microseconds(), f.err
		durations[i], leaves[i] = f.duration.Microseconds(), f.leaves
		attempts[i], interruptions[i] = f.Claimed.attempts, f.Claimed.interruptions
		newAttempts[i], newInterruptions[i] = f.attempts, f.interruptions
		if f.dead {
			states[i] = statusDead
		}
		if !f.fresh {
			transaction = f.transaction
		}
	}
	var recorded int
	err := s.scan(ctx, q, &recorded, s.text(postgresFailed),
		pgdialect.Array(ids), pgdialect.Array(attempts), pgdialect.Array(interruptions),
		pgdialect.Array(newAttempts), pgdialect.Array(newInterruptions), pgdialect.Array(delays),
		pgdialect.Array(states), pgdialect.Array(errs), pgdialect.Array(leaves), pgdialect.Array(durations),
		transaction, transaction, processor)
	if err == nil && recorded != n {
		err = errNotClaimed
	}
	return err
}

// anyDue is always true: a claim locks nothing when nothing is due.
func (s *postgres) anyDue(context.Context, []string) (bool, error) { return true, nil }

// setLockTimeout bounds how long the statements of this transaction wait for locks.
func (s *postgres) setLockTimeout(ctx context.Context, q querier, timeout time.Duration) error {
	_, err := s.exec(ctx, q, postgresLockTimeout, fmt.Sprintf("%dms", max(timeout.Milliseconds(), 1)))
	return err
}

func (s *postgres) receive(ctx context.Context, q querier, receipt row) (fresh bool, err error) {
	result, err := s.exec(ctx, q, s.text(postgresReceive), receipt.Source, receipt.MessageID, receipt.Name, receipt.metadata)
	return inserted(result, err)
}

func (s *postgres) stamp(ctx context.Context, q querier, receipt row) error {
	return s.execCount(ctx, q, 1, s.text(postgresStamp), receipt.metadata, receipt.Source, receipt.MessageID, receipt.Name)
}

// transaction returns the id of a transaction that has written.
func (s *postgres) transaction(ctx context.Context, q querier) (id string, err error) {
	err = s.scan(ctx, q, &id, `SELECT pg_current_xact_id_if_assigned()::text`)
	return id, err
}

// evict ends the session that is in a transaction, and waits until it is gone.
func (s *postgres) evict(ctx context.Context, transaction string) error {
	for {
		var sessions int
		if err := s.scan(ctx, s.db.DB, &sessions, postgresEvict, transaction); err != nil || sessions == 0 {
			return err
		}
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}
