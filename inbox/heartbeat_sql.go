package inbox

// SQL of the processors' rows. On SQLite times are text, and come as arguments.
const (
	// None of this has to survive a crash of the database.
	postgresBeatAsync = `SELECT set_config('synchronous_commit', 'off', true)`

	postgresBeat = `
INSERT INTO {processors} AS p (id, host, pid, process, workers, names, started_at, seen_at, lapses_at)
VALUES (?, ?, ?, ?, ?, ?, {clock}, {clock}, {clock} + ? * interval '1 microsecond')
ON CONFLICT (id) DO UPDATE
SET seen_at = excluded.seen_at, lapses_at = excluded.lapses_at, cautious_until = NULL`

	postgresPredecessors = `
SELECT id, pid FROM {processors} WHERE host = ? AND process <> ? AND cautious_until IS NULL`

	postgresNoticed = `
UPDATE {processors} SET cautious_until = {clock} + ? * interval '1 microsecond'
WHERE cautious_until IS NULL AND id <> ? AND (lapses_at < {clock} OR id = ANY (?::text[]))`

	postgresCautious = `
SELECT COALESCE(EXTRACT(epoch FROM max(cautious_until) - {clock}), 0)::float8 FROM {processors}`

	postgresForgetProcessors = `DELETE FROM {processors} WHERE cautious_until < {clock} - interval '1 day'`
	forgetProcessor          = `DELETE FROM {processors} WHERE id = ?`

	postgresMinute = `
INSERT INTO {minutes} AS m (minute, name, processed, failed, died)
SELECT date_trunc('minute', {clock}), u.* FROM unnest(?::text[], ?::bigint[], ?::bigint[], ?::bigint[]) AS u
ORDER BY 2
ON CONFLICT (minute, name) DO UPDATE
SET processed = m.processed + excluded.processed, failed = m.failed + excluded.failed, died = m.died + excluded.died`

	postgresForgetMinutes = `DELETE FROM {minutes} WHERE minute < {clock} - interval '1 day'`

	sqliteBeat = `
INSERT INTO {processors} (id, host, pid, process, workers, names, started_at, seen_at, lapses_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE
SET seen_at = excluded.seen_at, lapses_at = excluded.lapses_at, cautious_until = NULL`

	sqliteNoticed = `
UPDATE {processors} SET cautious_until = ?
WHERE cautious_until IS NULL AND id <> ? AND (lapses_at < ? OR id IN ({list}))`

	sqliteCautious = `SELECT COALESCE(max(cautious_until), '') FROM {processors}`

	sqliteForgetProcessors = `DELETE FROM {processors} WHERE cautious_until < ?`

	sqliteMinute = `
INSERT INTO {minutes} (minute, name, processed, failed, died) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (minute, name) DO UPDATE
SET processed = processed + excluded.processed, failed = failed + excluded.failed, died = died + excluded.died`

	sqliteForgetMinutes = `DELETE FROM {minutes} WHERE minute < ?`

	// A cautious processor writes down that it starts a message, and keeps
	// others away until it has claimed it again.
	postgresStart = `
UPDATE {queue} SET starts = starts + 1, due = {clock} + ? * interval '1 microsecond'
WHERE id = ? AND state = 0 AND starts = ?`
	postgresUnstart = `UPDATE {queue} SET starts = starts - 1, due = {clock} WHERE id = ? AND state = 0 AND starts = ?`

	sqliteStart   = `UPDATE {queue} SET starts = starts + 1, due = ? WHERE id = ? AND state = 0 AND starts = ?`
	sqliteUnstart = `UPDATE {queue} SET starts = starts - 1, due = ? WHERE id = ? AND state = 0 AND starts = ?`

	// The first unfinished message of each key behind the one given: parked, it
	// has nobody to wake it. Each step is one look into the index.
	auditKeys = `
WITH RECURSIVE keys (k, n) AS (
	SELECT (SELECT min(ordering_key) FROM {queue} WHERE ordering_key > ? AND ordering_key <> ''), 1
	UNION ALL
	SELECT (SELECT min(q.ordering_key) FROM {queue} q WHERE q.ordering_key > keys.k AND q.ordering_key <> ''), n + 1
	FROM keys WHERE k IS NOT NULL AND n < ?
)
SELECT k AS key, (SELECT q.state FROM {queue} q WHERE q.ordering_key = k AND q.ordering_key <> '' ORDER BY q.ordering_key, q.id LIMIT 1) AS state
FROM keys WHERE k IS NOT NULL`
)
