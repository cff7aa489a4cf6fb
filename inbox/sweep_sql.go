package inbox

// SQL of the sweep, for both databases; see both. What a batch has examined is
// only a proposal: each DELETE and UPDATE checks its conditions again on the
// messages row.
const (
	// Held by the transaction of one batch, so that there is one sweeper at a time.
	postgresSweepLock = `SELECT pg_try_advisory_xact_lock(?)`

	sweepExamine = `
SELECT m.id, m.status, m.received_at, m.processed_at, m.discarded_at, m.payload IS NOT NULL AS payload
FROM {messages} m WHERE m.id > ? ORDER BY m.id LIMIT ?`

	// A row that somebody holds stays for the next time.
	sweepLockMessages = `
SELECT m.id FROM {messages} m WHERE m.id IN ({ids}) ORDER BY m.id {skip_locked}`

	sweepProcessed = `
DELETE FROM {messages}
WHERE id IN ({ids}) AND received_at < ? AND (status = 1 AND processed_at < ? OR status = 2 AND discarded_at < ?)
RETURNING id`

	sweepPayloads = `
UPDATE {messages} SET payload = NULL, payload_removed_at = {clock}
WHERE id IN ({ids}) AND received_at < ? AND (status = 1 AND processed_at < ? OR status = 2 AND discarded_at < ?)
	AND payload IS NOT NULL
RETURNING id`

	// The due time of a dead message is the time of its death.
	sweepLockQueued = `
SELECT q.id, q.ordering_key FROM {queue} q
WHERE q.id IN ({ids}) AND (q.state = 2 AND q.due < ? OR q.state <> 2 AND q.due < ?)
ORDER BY q.id {of_queue}`

	sweepQueued = `
DELETE FROM {messages}
WHERE id IN ({ids}) AND (status = 2 AND discarded_at IS NULL AND received_at < ? OR status = 0 AND received_at < ?)
RETURNING id, status`

	sweepQueue = `DELETE FROM {queue} WHERE id IN ({ids})`

	sweepAttempts = `DELETE FROM {attempts} WHERE id IN ({ids})`
)
