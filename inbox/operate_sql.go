package inbox

// SQL of the operator verbs, for both databases; see both. A verb locks the
// queue row first; what it does then is a compare-and-set all the same.
const (
	operateQueued = `SELECT q.id, q.name, q.state, q.ordering_key FROM {queue} q WHERE q.id = ? {for_update}`

	operateMessage = `
SELECT m.id, m.source, m.message_id, m.name, m.ordering_key, m.status,
	m.discarded_at IS NOT NULL AS discarded, m.payload IS NULL AS removed
FROM {messages} m WHERE m.id = ?`

	// A dead message begins again; one that waits is due now. Its place in its
	// ordering key is kept, or given back.
	reviveQueued = `
UPDATE {queue} SET state = 0, due = {clock}, attempts = 0, interruptions = 0, starts = 0,
	ordering_key = (SELECT m.ordering_key FROM {messages} m WHERE m.id = {queue}.id)
WHERE id IN ({ids}) AND state = 2`

	reviveMessages = `
UPDATE {messages} SET status = 0, attempts = 0 WHERE id IN ({ids}) AND status = 2 AND discarded_at IS NULL`

	hurryQueued = `UPDATE {queue} SET due = {clock} WHERE id = ? AND state <> 2 AND due > {clock}`

	editPayload = `
UPDATE {messages} SET payload = ?, payload_removed_at = NULL WHERE id = ? AND status = 2 AND discarded_at IS NULL`

	discardQueued = `DELETE FROM {queue} WHERE id = ?`

	discardMessage = `
UPDATE {messages} SET status = 2, discarded_at = {clock} WHERE id = ? AND status <> 1 AND discarded_at IS NULL`

	skipDead = `
SELECT q.id FROM {queue} q WHERE q.ordering_key = ? AND q.ordering_key <> '' AND q.state = 2
ORDER BY q.id {for_update}`

	skipQueued = `UPDATE {queue} SET ordering_key = '' WHERE id IN ({ids}) AND state = 2`

	lockDead = `
SELECT q.id FROM {queue} q
WHERE q.id IN ({ids}) AND q.state = 2
	AND EXISTS (SELECT 1 FROM {messages} m WHERE m.id = q.id AND m.payload IS NOT NULL)
ORDER BY q.id {of_queue}`
)
