package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The handler's business table. Nothing keeps a message from having two rows in
// it: that would hide what verify looks for.
const (
	createEffects = `CREATE TABLE effects (message_id text NOT NULL, account text NOT NULL, cents bigint NOT NULL)`
	clearEffects  = `TRUNCATE effects`
	countEffects  = `SELECT count(*) FROM effects`
	sumEffects    = `SELECT count(*), count(DISTINCT message_id), COALESCE(sum(cents), 0)::bigint FROM effects`

	insertEffect  = `INSERT INTO effects (message_id, account, cents) VALUES ($1, $2, $3)`
	insertEffects = `
INSERT INTO effects (message_id, account, cents)
SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[])`

	// When the server wrote the commit of the last effect, from a time of its own.
	lastEffect = `
SELECT EXTRACT(epoch FROM max(pg_xact_commit_timestamp(xmin)) - $1)::float8 FROM effects`

	effectTimes = `
SELECT message_id, pg_xact_commit_timestamp(xmin) FROM effects`
)

// errRefused says that a run did not do its work, so that its rate means nothing.
var errRefused = errors.New("the effects do not add up")

// counts are two queries on a peer's tables: how many distinct messages are
// stored, and how many of them are not finished. Empty: the peer cannot say.
type counts struct{ stored, unfinished string }

// verify compares what is in the database with what should have happened: each
// message once, and none left.
func (d *database) verify(ctx context.Context, c counts, messages []message) error {
	var rows, distinct, cents int64
	if err := d.pool.QueryRow(ctx, sumEffects).Scan(&rows, &distinct, &cents); err != nil {
		return err
	}
	if n := int64(len(messages)); rows != n || distinct != n || cents != sum(messages) {
		return fmt.Errorf("%w: %d rows for %d of %d messages, sum %d instead of %d",
			errRefused, rows, distinct, n, cents, sum(messages))
	}
	return d.verifyFinished(ctx, c)
}

func (d *database) verifyFinished(ctx context.Context, c counts) error {
	if c.unfinished == "" {
		return nil
	}
	unfinished, err := d.count(ctx, c.unfinished)
	if err == nil && unfinished != 0 {
		err = fmt.Errorf("%w: %d messages are not finished", errRefused, unfinished)
	}
	return err
}

func (d *database) count(ctx context.Context, query string) (n int64, err error) {
	err = d.pool.QueryRow(ctx, query).Scan(&n)
	return n, err
}

// committed counts the effects that are in.
func (d *database) committed(ctx context.Context) (int64, error) { return d.count(ctx, countEffects) }

// now is the server's clock.
func (d *database) now(ctx context.Context) (now time.Time, err error) {
	err = d.pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now)
	return now, err
}

// untilLastEffect returns the seconds from begin to the last commit of an effect.
func (d *database) untilLastEffect(ctx context.Context, begin time.Time) (seconds float64, err error) {
	err = d.pool.QueryRow(ctx, lastEffect, begin).Scan(&seconds)
	return seconds, err
}

// effectTimes returns when each message's effect was committed.
func (d *database) effectTimes(ctx context.Context) (map[string]time.Time, error) {
	rows, err := d.pool.Query(ctx, effectTimes)
	if err != nil {
		return nil, err
	}
	times := map[string]time.Time{}
	var id string
	var at time.Time
	for rows.Next() {
		if err := rows.Scan(&id, &at); err != nil {
			return nil, err
		}
		times[id] = at
	}
	return times, rows.Err()
}
