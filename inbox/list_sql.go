package inbox

// SQL of lists, for both databases; see both. None reads a payload. Each looks
// at a window of rows that was found beforehand along an index.
const (
	summaryColumns = `
SELECT m.id, m.source, m.message_id, m.name, m.ordering_key, m.status, m.last_error,
	m.received_at, m.processed_at, m.discarded_at, m.payload_removed_at,
	COALESCE(q.attempts, m.attempts) AS attempts, COALESCE(q.interruptions, 0) AS interruptions,
	COALESCE(q.state, -1) AS state, COALESCE(q.ordering_key, '') AS queue_key, q.due`

	detailColumns = summaryColumns + `, m.payload, m.fingerprint, m.metadata`

	detailOf = detailColumns + `
FROM {messages} m LEFT JOIN {queue} q ON q.id = m.id WHERE m.id = ?`

	attemptsOf = `SELECT number, started_at, duration, processor, error FROM {attempts} WHERE id = ? ORDER BY number`

	blockerOf = `
SELECT id FROM {queue}
WHERE ordering_key >= ? AND ordering_key <= ? AND ordering_key <> '' AND id < ?
ORDER BY ordering_key, id LIMIT 1`

	// The limit inside leads the planner to the index of the dead ones, where
	// those are meant, instead of past all others.
	listQueued = summaryColumns + `
FROM (
	SELECT q.* FROM {queue} q WHERE q.id >= ? AND q.id < ?{queued} ORDER BY q.id DESC LIMIT ?
) q CROSS JOIN {messages} m
WHERE m.id = q.id{conditions}
ORDER BY q.id DESC LIMIT ?`

	listMessages = summaryColumns + `
FROM {messages} m LEFT JOIN {queue} q ON q.id = m.id
WHERE m.id >= ? AND m.id < ?{conditions}
ORDER BY m.id DESC LIMIT ?`

	// All sources, by leaps along the primary key, and then the message id.
	listIdentity = `
WITH RECURSIVE sources (source, n) AS (
	SELECT min(source), 1 FROM {messages}
	UNION ALL
	SELECT (SELECT min(m.source) FROM {messages} m WHERE m.source > s.source), s.n + 1
	FROM sources s WHERE s.source IS NOT NULL AND s.n < 1000
)` + summaryColumns + `
FROM sources s CROSS JOIN {messages} m LEFT JOIN {queue} q ON q.id = m.id
WHERE m.source = s.source AND m.message_id = ? AND m.id < ?{conditions}
ORDER BY m.id DESC LIMIT ?`

	listIdentityOfSource = summaryColumns + `
FROM {messages} m LEFT JOIN {queue} q ON q.id = m.id
WHERE m.source = ? AND m.message_id = ? AND m.id < ?{conditions}
ORDER BY m.id DESC LIMIT ?`

	windowQueued = `
SELECT COALESCE(min(id), 0) AS low, count(*) AS count
FROM (SELECT q.id FROM {queue} q WHERE q.id < ?{queued} ORDER BY q.id DESC LIMIT ?) w`

	windowMessages = `
SELECT COALESCE(min(id), 0) AS low, count(*) AS count
FROM (SELECT m.id FROM {messages} m WHERE m.id < ? ORDER BY m.id DESC LIMIT ?) w`

	// For RetryAll: upwards, and the messages only where a filter asks for them.
	windowDead = `SELECT q.id FROM {queue} q WHERE q.id > ?{queued} ORDER BY q.id LIMIT ?`

	matchDead = `
SELECT q.id FROM {queue} q CROSS JOIN {messages} m WHERE m.id = q.id AND q.id IN ({ids}){conditions} ORDER BY q.id`
)
