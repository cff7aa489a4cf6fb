package inbox

import "strings"

// SQL for PostgreSQL. {messages}, {queue}, {schema} and {sequence} stand for
// quoted names, {now} for the start of the statement and {clock} for the time
// that is written. A ? is an argument that bun writes into the text. The
// statuses stand in the text as numbers, so that partial indexes match under
// generic plans too. An array is bound in a sub-select: its length is no news to
// the planner then, which would otherwise plan anew for every short one, and take
// longer than the statement:
// https://www.postgresql.org/docs/current/sql-prepare.html#SQL-PREPARE-NOTES
const (
	// Accept: number the entries in the order given, leave out what is there
	// already (without that, ON CONFLICT would wait for a transaction that is
	// just settling the row), insert sorted by identity so that overlapping
	// batches lock in one order, queue what came back. The arguments are bound: a
	// text of this size costs more to read than to run.
	postgresAddMany = `
WITH input AS MATERIALIZED (
	SELECT nextval('{sequence}') AS id, u.*
	FROM unnest((SELECT $1::text[]), (SELECT $2::text[]), (SELECT $3::text[]), (SELECT $4::text[]),
			(SELECT $5::bytea[]), (SELECT $6::bytea[]), (SELECT $7::text[]){dues})
		AS u (source, message_id, name, ordering_key, payload, fingerprint, metadata{due})
	WHERE {bounded}
), inserted AS (
	INSERT INTO {messages} (id, source, message_id, name, ordering_key, payload, fingerprint, metadata, received_at)
	SELECT i.id, i.source, i.message_id, i.name, i.ordering_key, i.payload, NULLIF(i.fingerprint, ''::bytea), i.metadata, {clock}
	FROM input i
	WHERE (
		SELECT true FROM {messages} m WHERE m.source = i.source AND m.message_id = i.message_id AND m.name = i.name LIMIT 1
	) IS NULL
	ORDER BY i.source COLLATE "C", i.message_id COLLATE "C", i.name COLLATE "C", i.id
	ON CONFLICT DO NOTHING
	RETURNING id, name, ordering_key
), queued AS (
	INSERT INTO {queue} (id, name, ordering_key, due)
	{queued}
)
SELECT (SELECT string_agg(id::text, ',' ORDER BY id) FROM input) AS given,
	(SELECT COALESCE(string_agg(id::text, ','), '') FROM inserted) AS stored`

	// The due times rise with the ids; those of receipt follow the identities.
	postgresQueued    = `SELECT id, name, ordering_key, {clock} FROM inserted ORDER BY id`
	postgresQueuedDue = `SELECT n.id, n.name, n.ordering_key, GREATEST(NULLIF(i.due, '')::timestamptz, {clock})
	FROM inserted n JOIN input i USING (id)
	ORDER BY n.id`

	// The same for one entry, which is planned in an eighth of the time.
	postgresAddOne = `
WITH inserted AS (
	INSERT INTO {messages} (source, message_id, name, ordering_key, payload, fingerprint, metadata, received_at)
	SELECT $1::text, $2::text, $3::text, $4::text, $5::bytea, NULLIF($6::bytea, ''::bytea), $7::text, {clock}
	WHERE NOT EXISTS (
		SELECT FROM {messages} WHERE source = $1::text AND message_id = $2::text AND name = $3::text)
	ON CONFLICT DO NOTHING
	RETURNING id, received_at
)
INSERT INTO {queue} (id, name, ordering_key, due)
SELECT id, $3::text, $4::text, GREATEST(NULLIF($8::text, '')::timestamptz, received_at) FROM inserted
RETURNING id::text`

	// A statement of several calls waits only this long for somebody's open
	// transaction with one of its ids. The setting is made first,
	// once, and ends with the transaction.
	postgresBounded = `(SELECT set_config('lock_timeout', '50ms', true)) IS NOT NULL`

	postgresExisting = `
SELECT m.source, m.message_id, m.name, m.fingerprint
FROM unnest(?::text[], ?::text[], ?::text[]) AS u (source, message_id, name)
JOIN {messages} m ON m.source = u.source AND m.message_id = u.message_id AND m.name = u.name`

	// A receipt is stored as processed and never queued. NOT EXISTS as in Accept.
	postgresReceive = `
INSERT INTO {messages} (source, message_id, name, ordering_key, metadata, status, received_at, processed_at)
SELECT r.source, r.message_id, r.name, '', r.metadata, 1, {clock}, {clock}
FROM (SELECT ?::text AS source, ?::text AS message_id, ?::text AS name, ?::text AS metadata) r
WHERE NOT EXISTS (
	SELECT FROM {messages} m WHERE m.source = r.source AND m.message_id = r.message_id AND m.name = r.name)
ON CONFLICT DO NOTHING`

	postgresStamp = `
UPDATE {messages} SET processed_at = {clock}, metadata = ?
WHERE source = ? AND message_id = ? AND name = ? AND status = 1 AND payload IS NULL AND payload_removed_at IS NULL`

	// Claim: for each name, the rows behind its mark in order of their due
	// time. The LIMIT outside keeps it from locking more rows than it returns; it
	// stands in the text, so that a plan that PostgreSQL keeps knows it.
	postgresClaim        = postgresClaimHead + postgresClaimTail
	postgresClaimWithout = postgresClaimHead + `AND q.ordering_key <> ALL ((SELECT $4::text[])::text[])` + postgresClaimTail

	postgresClaimHead = `
WITH claimed AS MATERIALIZED (
	SELECT c.*
	FROM unnest((SELECT $1::text[]), (SELECT $2::timestamptz[]), (SELECT $3::bigint[])) AS n (name, due, id)
	CROSS JOIN LATERAL (
		SELECT q.id, q.ordering_key, q.due, q.attempts, q.interruptions, q.starts
		FROM {queue} q
		WHERE q.name = n.name AND q.state = 0 AND q.due <= {now} AND (q.due, q.id) > (n.due, n.id)
			AND NOT COALESCE((SELECT true FROM {pauses} p WHERE p.name = n.name), false)
			`
	postgresClaimTail = `
		ORDER BY q.due, q.id
		LIMIT {limit}
		FOR UPDATE SKIP LOCKED
	) c
	LIMIT {limit}
)` + postgresClaimed

	postgresClaimOne = `
WITH claimed AS MATERIALIZED (
	SELECT q.id, q.ordering_key, q.due, q.attempts, q.interruptions, q.starts
	FROM {queue} q
	WHERE q.id = $1::text::bigint AND q.state = 0 AND (q.due <= {now} OR q.starts > 0 AND q.starts = $2::text::int)
	FOR UPDATE SKIP LOCKED
)` + postgresClaimed

	// The lock of an ordering key is tried here and held to the end of the
	// transaction; what is earlier in the key is looked for afterwards. The LIMIT
	// inside makes one look per row the only plan: a kept one that joins would
	// read the whole history.
	postgresClaimed = `
SELECT c.id, c.ordering_key, c.due, c.attempts, c.interruptions, c.starts,
	m.source, m.message_id, m.name, m.payload, m.metadata, m.received_at,
	pg_current_xact_id_if_assigned()::text AS xid,
	c.ordering_key <> '' AND NOT pg_try_advisory_xact_lock(hashtextextended(c.ordering_key, {key_lock})) AS busy
FROM claimed c CROSS JOIN LATERAL (SELECT * FROM {messages} m WHERE m.id = c.id LIMIT 1) m
ORDER BY c.due, c.id`

	// Settle: only in the transaction that claimed, all rows or none.
	postgresProcessed = `
WITH done AS (
	DELETE FROM {queue}
	WHERE id = ANY ((SELECT $1::bigint[])::bigint[]) AND state = 0 AND pg_current_xact_id_if_assigned()::text = $2::text
	RETURNING id
), settled AS (
	UPDATE {messages} SET status = 1, processed_at = {clock}
	WHERE id = ANY ((SELECT $1::bigint[])::bigint[]) AND status = 0 AND (SELECT count(*) FROM done) = $3::text::bigint
	RETURNING id
)
SELECT count(*) FROM settled`

	// Messages whose fate is another try or death.
	postgresFailed = `
WITH failure AS MATERIALIZED (
	SELECT * FROM unnest(?::bigint[], ?::int[], ?::int[], ?::int[], ?::int[], ?::bigint[], ?::int[], ?::text[], ?::bool[], ?::bigint[])
		AS u (id, attempts, interruptions, new_attempts, new_interruptions, delay, state, error, leaves, duration)
), recorded AS (
	UPDATE {queue} q
	SET attempts = f.new_attempts, interruptions = f.new_interruptions, state = f.state, starts = 0,
		ordering_key = CASE WHEN f.leaves THEN '' ELSE q.ordering_key END,
		due = {clock} + f.delay * interval '1 microsecond'
	FROM failure f
	WHERE q.id = f.id AND q.attempts = f.attempts AND q.interruptions = f.interruptions AND q.state = 0
		AND (? = '' OR pg_current_xact_id_if_assigned()::text = ?)
	RETURNING q.id
), noted AS (
	UPDATE {messages} m
	SET attempts = f.new_attempts, status = f.state, last_error = f.error
	FROM recorded r JOIN failure f USING (id)
	WHERE m.id = r.id AND m.status = 0 AND f.error <> ''
), last AS MATERIALIZED (
	SELECT f.*, COALESCE((SELECT max(a.number) FROM {attempts} a WHERE a.id = f.id), 0) AS number
	FROM recorded r JOIN failure f USING (id)
	WHERE f.error <> ''
), remembered AS (
	INSERT INTO {attempts} (id, number, started_at, duration, processor, error)
	SELECT id, number + 1, {clock} - duration * interval '1 microsecond', duration, ?, error FROM last
), forgotten AS (
	DELETE FROM {attempts} a USING last WHERE a.id = last.id AND a.number <= last.number + 1 - {history}
)
SELECT count(*) FROM recorded`

	postgresStatus = `SELECT COALESCE(pg_xact_status(?::xid8), '')`

	// A session is named by the transaction it is still in, so that nobody else's
	// is ended.
	postgresEvict = `
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE backend_xid = ?::xid8::xid AND pid <> pg_backend_pid()`

	postgresLockTimeout = `SELECT set_config('lock_timeout', ?, true)`

	// While a table has grown faster than its statistics, the planner would
	// rather read and sort the whole queue than walk along the index.
	postgresInIndexOrder = `SELECT set_config('enable_sort', 'off', true)`

	// One bounded range of the claim index per name: neither the dead nor the
	// rest of a long queue cost anything.
	postgresBacklog = `
SELECT count(*) FROM (
	SELECT 1
	FROM unnest(?::text[]) AS n (name)
	CROSS JOIN LATERAL (
		SELECT 1 FROM {queue} q WHERE q.name = n.name AND q.state = 0 ORDER BY q.due, q.id LIMIT ?
	) c
	LIMIT ?
) b`

	postgresBacklogOldest = `
SELECT COALESCE(EXTRACT(epoch FROM {clock} - min(c.due)), 0)::float8
FROM unnest(?::text[]) AS n (name)
CROSS JOIN LATERAL (
	SELECT q.due FROM {queue} q WHERE q.name = n.name AND q.state = 0 AND q.due <= {now} ORDER BY q.due, q.id LIMIT 1
) c`

	postgresMessageStatus = `
SELECT m.id, m.name, m.status, COALESCE(q.attempts, m.attempts) AS attempts, m.received_at, m.processed_at, q.due
FROM {messages} m LEFT JOIN {queue} q ON q.id = m.id
WHERE m.source = ? AND m.message_id = ? AND m.name = ANY (?::text[])
ORDER BY m.id
LIMIT 1`

	postgresMessages = `
SELECT GREATEST(reltuples, 0)::bigint AS estimate, pg_relation_size(oid) AS bytes
FROM pg_class WHERE oid = '{messages_text}'::regclass`

	postgresCountMessages = `SELECT count(*) FROM {messages}`

	postgresVersion = `SELECT COALESCE(max(version), 0) FROM {schema}`
)

// postgresAdd is the statement that stores several entries, by whether one of
// them has a due time, and whether it is bounded.
var postgresAdd = map[bool]map[bool]string{
	false: {false: postgresAddWith("", "", postgresQueued, "true"), true: postgresAddWith("", "", postgresQueued, postgresBounded)},
	true: {
		false: postgresAddWith(", (SELECT $8::text[])", ", due", postgresQueuedDue, "true"),
		true:  postgresAddWith(", (SELECT $8::text[])", ", due", postgresQueuedDue, postgresBounded),
	},
}

func postgresAddWith(dues, due, queued, bounded string) string {
	return strings.NewReplacer("{dues}", dues, "{due}", due, "{queued}", queued, "{bounded}", bounded).Replace(postgresAddMany)
}
