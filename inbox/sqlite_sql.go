package inbox

// SQL for SQLite; see postgres_sql.go. Times are text in one fixed-width format
// and always come from sqliteTime. {rows} and {list} stand for as many
// placeholders as there are values.
const (
	// A statement that may write takes the write lock, however the transaction
	// began, and so before anything was read in it.
	sqliteLock = `UPDATE {queue} SET state = state WHERE 0`

	// Before the first migration there is no table to lock with.
	sqliteMigrateLock   = `CREATE TABLE {migrating} (locked INTEGER)`
	sqliteMigrateUnlock = `DROP TABLE {migrating}`

	sqliteInsert     = sqliteInsertHead + `{rows}` + sqliteInsertTail
	sqliteInsertOne  = sqliteInsertHead + `(?, ?, ?, ?, ?, ?, ?, ?)` + sqliteInsertTail
	sqliteInsertHead = `
INSERT INTO {messages} (source, message_id, name, ordering_key, payload, fingerprint, metadata, received_at)
VALUES `
	sqliteInsertTail = `
ON CONFLICT DO NOTHING
RETURNING id, source, message_id, name`

	sqliteReceive = `
INSERT INTO {messages} (source, message_id, name, ordering_key, metadata, status, received_at, processed_at)
VALUES (?, ?, ?, '', ?, 1, ?, ?)
ON CONFLICT DO NOTHING`

	sqliteStamp = `
UPDATE {messages} SET processed_at = ?, metadata = ?
WHERE source = ? AND message_id = ? AND name = ? AND status = 1 AND payload IS NULL AND payload_removed_at IS NULL`

	sqliteQueue    = `INSERT INTO {queue} (id, name, ordering_key, due) VALUES {rows}`
	sqliteQueueOne = `INSERT INTO {queue} (id, name, ordering_key, due) VALUES (?, ?, ?, ?)`

	sqliteExisting = `
SELECT m.source, m.message_id, m.name, m.fingerprint
FROM {messages} m
WHERE (m.source, m.message_id, m.name) IN (VALUES {rows})`

	sqliteDue = `
SELECT EXISTS (
	SELECT 1 FROM {queue} WHERE name IN (SELECT value FROM json_each(?)) AND state = 0 AND due <= ?
		AND name NOT IN (SELECT name FROM {pauses}))`

	sqliteClaim = `
SELECT q.id, q.ordering_key, q.due, q.attempts, q.interruptions, q.starts,
	m.source, m.message_id, m.name, m.payload, m.metadata, m.received_at, NULL AS xid, false AS busy
FROM {queue} q JOIN {messages} m ON m.id = q.id
WHERE q.name = ? AND q.state = 0 AND q.due <= ?
	AND NOT EXISTS (SELECT 1 FROM {pauses} WHERE name = ?) AND q.ordering_key NOT IN (SELECT value FROM json_each(?))
ORDER BY q.due, q.id
LIMIT ?`

	sqliteClaimOne = `
SELECT q.id, q.ordering_key, q.due, q.attempts, q.interruptions, q.starts,
	m.source, m.message_id, m.name, m.payload, m.metadata, m.received_at, NULL AS xid, false AS busy
FROM {queue} q JOIN {messages} m ON m.id = q.id
WHERE q.id = ? AND q.state = 0 AND (q.due <= ? OR q.starts > 0 AND q.starts = ?)`

	sqliteDelete    = `DELETE FROM {queue} WHERE id IN (SELECT value FROM json_each(?)) AND state = 0`
	sqliteProcessed = `UPDATE {messages} SET status = 1, processed_at = ? WHERE id IN (SELECT value FROM json_each(?)) AND status = 0`

	sqliteFailedQueue = `
UPDATE {queue} SET attempts = ?, interruptions = ?, state = ?, due = ?, starts = 0,
	ordering_key = CASE WHEN ? THEN '' ELSE ordering_key END
WHERE id = ? AND attempts = ? AND interruptions = ? AND state = 0`

	sqliteFailedMessage = `UPDATE {messages} SET attempts = ?, status = ?, last_error = ? WHERE id = ? AND status = 0`

	sqliteRemember = `
INSERT INTO {attempts} (id, number, started_at, duration, processor, error)
SELECT ?, COALESCE(max(number), 0) + 1, ?, ?, ?, ? FROM {attempts} WHERE id = ?`

	sqliteForget = `
DELETE FROM {attempts} WHERE id = ? AND number <= (SELECT max(number) FROM {attempts} WHERE id = ?) - {history}`

	sqliteBacklog = `
SELECT count(*) FROM (SELECT 1 FROM {queue} WHERE name IN ({list}) AND state = 0 LIMIT ?)`

	sqliteBacklogOldest = `
SELECT COALESCE(min(due), '') FROM {queue} WHERE name = ? AND state = 0 AND due <= ?`

	sqliteMessageStatus = `
SELECT m.id, m.name, m.status, COALESCE(q.attempts, m.attempts) AS attempts, m.received_at,
	COALESCE(m.processed_at, '') AS processed_at, COALESCE(q.due, '') AS due
FROM {messages} m LEFT JOIN {queue} q ON q.id = m.id
WHERE m.source = ? AND m.message_id = ? AND m.name IN ({list})
ORDER BY m.id
LIMIT 1`

	sqliteCountMessages = `SELECT count(*) FROM {messages}`

	sqliteVersion = `SELECT COALESCE(max(version), 0) FROM {schema}`
)
