package inbox

// SQL of ordering keys. An index scan is asked for by a range, since equality
// would let the planner walk the primary key instead.
const (
	postgresEarliest = `
SELECT k.key, f.id
FROM unnest((SELECT $1::text[])) AS k (key)
CROSS JOIN LATERAL (
	SELECT q.id FROM {queue} q
	WHERE q.ordering_key >= k.key AND q.ordering_key <= k.key AND q.ordering_key <> '' AND q.id <> ALL ((SELECT $2::bigint[])::bigint[])
	ORDER BY q.ordering_key, q.id
	LIMIT 1
) f`

	// Excludes those that park and those that unpark from each other, per key.
	// In a statement of its own, so that the next one sees what the other did.
	postgresParkLock = `
SELECT count(pg_advisory_xact_lock(h)) FROM (
	SELECT DISTINCT hashtextextended(k, {park_lock}) AS h FROM unnest((SELECT $1::text[])) AS k ORDER BY h
) AS l`

	// A lost parking is no loss.
	postgresParkAsync = `SELECT set_config('synchronous_commit', 'off', true)`

	postgresPark = `
WITH followers AS MATERIALIZED (
	SELECT f.id
	FROM unnest(?::text[], ?::bigint[]) AS k (key, start)
	CROSS JOIN LATERAL (
		SELECT q.id FROM {queue} q
		WHERE q.ordering_key >= k.key AND q.ordering_key <= k.key AND q.ordering_key <> ''
			AND q.id >= k.start AND q.state = 0
		ORDER BY q.ordering_key, q.id
		LIMIT ?
		FOR UPDATE SKIP LOCKED
	) f
	WHERE EXISTS (
		SELECT FROM {queue} e
		WHERE e.ordering_key = k.key AND e.ordering_key <> '' AND e.id < k.start)
)
UPDATE {queue} q SET state = 1 FROM followers f WHERE q.id = f.id RETURNING q.id`

	// A claim that came upon a message just when it was parked holds its row to
	// the end of its own transaction: such keys are reported as missed.
	postgresUnpark = `
WITH next AS MATERIALIZED (
	SELECT k.key, n.id, n.state
	FROM unnest((SELECT $1::text[])) AS k (key)
	CROSS JOIN LATERAL (
		SELECT q.id, q.state FROM {queue} q
		WHERE q.ordering_key >= k.key AND q.ordering_key <= k.key AND q.ordering_key <> ''
		ORDER BY q.ordering_key, q.id
		LIMIT {limit}
	) n
), parked AS MATERIALIZED (
	SELECT q.id
	FROM (SELECT id FROM next WHERE state = 1 ORDER BY id) n
	CROSS JOIN LATERAL (
		SELECT q.id FROM {queue} q WHERE q.id = n.id AND q.state = 1 FOR UPDATE SKIP LOCKED
	) q
), woken AS (
	UPDATE {queue} q SET state = 0 FROM parked p WHERE q.id = p.id RETURNING q.name, q.due, q.id
)
SELECT n.key, COALESCE(w.name, '') AS name, COALESCE(w.due, 'epoch') AS due, COALESCE(w.id, 0) AS id
FROM next n LEFT JOIN woken w USING (id)
WHERE n.state = 1`

	sqliteEarliest = `
SELECT id FROM {queue} WHERE ordering_key = ? AND ordering_key <> '' AND id NOT IN ({list}) ORDER BY id LIMIT 1`

	sqlitePark = `
UPDATE {queue} SET state = 1 WHERE id IN (
	SELECT id FROM {queue} WHERE ordering_key = ? AND ordering_key <> '' AND id >= ? AND state = 0 ORDER BY id LIMIT ?
) AND EXISTS (SELECT 1 FROM {queue} WHERE ordering_key = ? AND ordering_key <> '' AND id < ?)
RETURNING id`

	sqliteUnpark = `
UPDATE {queue} SET state = 0 WHERE state = 1 AND id IN (
	SELECT id FROM {queue} WHERE ordering_key = ? AND ordering_key <> '' ORDER BY id LIMIT ?
) RETURNING name, due, id`
)
