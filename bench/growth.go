package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// What the growth cases put into the inbox's tables beforehand, all of it older
// than the messages that are measured.
const (
	growProcessed = `
INSERT INTO inbox_messages (source, message_id, name, ordering_key, payload, fingerprint, metadata, status, received_at, processed_at)
SELECT 'bench', gen_random_uuid()::text, 'credit_account', '', convert_to(rpad('{"id":"' || i, 200, 'x'), 'UTF8'),
	sha256(convert_to(i::text, 'UTF8')), '', 1, now() - interval '1 hour', now() - interval '1 hour'
FROM generate_series(1, $1::bigint) i`

	ageProcessed = `
UPDATE inbox_messages SET received_at = received_at - interval '1 hour', processed_at = processed_at - interval '1 hour'
WHERE status = 1 AND processed_at > now() - interval '30 minutes'`

	growDead = `
WITH m AS (
	INSERT INTO inbox_messages (source, message_id, name, ordering_key, payload, metadata, status, attempts, last_error, received_at)
	SELECT 'bench', gen_random_uuid()::text, 'credit_account', '', convert_to(rpad('{"id":"' || i, 200, 'x'), 'UTF8'),
		'', 2, 5, 'it failed', now() - interval '1 hour'
	FROM generate_series(1, $1::bigint) i
	RETURNING id
)
INSERT INTO inbox_queue (id, name, ordering_key, due, attempts, state)
SELECT id, 'credit_account', '', now() - interval '1 hour', 5, 2 FROM m`

	growScheduled = `
WITH m AS (
	INSERT INTO inbox_messages (source, message_id, name, ordering_key, payload, metadata, received_at)
	SELECT 'bench', gen_random_uuid()::text, 'credit_account', '', convert_to(rpad('{"id":"' || i, 200, 'x'), 'UTF8'),
		'', now() - interval '1 hour'
	FROM generate_series(1, $1::bigint) i
	RETURNING id
)
INSERT INTO inbox_queue (id, name, ordering_key, due)
SELECT id, 'credit_account', '', now() + interval '1 year' FROM m`

	growForeign = `
WITH m AS (
	INSERT INTO inbox_messages (source, message_id, name, ordering_key, payload, metadata, received_at)
	SELECT 'bench', gen_random_uuid()::text, 'of_another_service', '', convert_to(rpad('{"id":"' || i, 200, 'x'), 'UTF8'),
		'', now() - interval '1 hour'
	FROM generate_series(1, $1::bigint) i
	RETURNING id
)
INSERT INTO inbox_queue (id, name, ordering_key, due)
SELECT id, 'of_another_service', '', now() - interval '1 hour' FROM m`
)

// loadQuickly puts messages where accept would, faster, for backlogs of hundreds
// of thousands.
func loadQuickly(ctx context.Context, o *opened, messages []message) error {
	b := byHand{pool: o.db.pool}
	return inBatches(messages, 5*loadBatch, func(batch []message) error { return b.accept(ctx, batch) })
}

// history adds processed rows.
func history(rows int) func(context.Context, *opened) error {
	return func(ctx context.Context, o *opened) error { return addRows(ctx, o, growProcessed, rows) }
}

// junk adds dead and scheduled rows, and a quarter as many of a foreign name.
func junk(rows int) func(context.Context, *opened) error {
	return func(ctx context.Context, o *opened) error {
		for _, add := range []struct {
			query string
			rows  int
		}{{growDead, rows}, {growScheduled, rows}, {growForeign, rows / 4}} {
			if err := addRows(ctx, o, add.query, add.rows); err != nil {
				return err
			}
		}
		return nil
	}
}

// addRows adds at most a million rows a transaction.
func addRows(ctx context.Context, o *opened, query string, rows int) error {
	const most = 1_000_000
	for ; rows > 0; rows -= most {
		if _, err := o.db.pool.Exec(ctx, query, min(rows, most)); err != nil {
			return err
		}
	}
	return o.db.settle(ctx)
}

// holdSnapshot keeps everything that dies from now on from being cleaned up.
func holdSnapshot(ctx context.Context, o *opened) (release func() error, err error) {
	conn, err := pgx.Connect(ctx, o.db.dsn)
	if err != nil {
		return nil, err
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err == nil {
		_, err = tx.Exec(ctx, "SELECT FROM inbox_schema") // now it has one
	}
	release = func() error { return conn.Close(context.WithoutCancel(ctx)) }
	if err != nil {
		return nil, errors.Join(err, release())
	}
	return release, nil
}
