package inbox

// SQL of the statistics, for both databases; see both. The queue is counted in
// one pass; messages are never read but for a bounded sample.
const (
	statsCounts = `
SELECT name, state, count(*) AS count,
	sum(CASE WHEN attempts > 0 THEN 1 ELSE 0 END) AS failing,
	min(CASE WHEN state = 0 AND due <= {now} THEN due END) AS oldest
FROM {queue} GROUP BY name, state`

	// The newest rows say what is coming in, and the sources are few.
	statsSources = `
SELECT m.source, q.state, count(*) AS count
FROM (SELECT id, state FROM {queue} ORDER BY id DESC LIMIT ?) q CROSS JOIN {messages} m
WHERE m.id = q.id
GROUP BY m.source, q.state`

	statsParkedKeys = `
SELECT count(DISTINCT ordering_key) FROM {queue} WHERE state = 2 AND ordering_key <> ''`

	parkedKeys = `
SELECT k.ordering_key AS key, k.id, k.dead, m.source, m.message_id, m.name, m.last_error, q.due AS since,
	(SELECT count(*) FROM (
		SELECT 1 FROM {queue} f
		WHERE f.ordering_key = k.ordering_key AND f.ordering_key <> '' AND f.id > k.id AND f.state <> 2
		LIMIT ?
	) w) AS waiting
FROM (
	SELECT ordering_key, min(id) AS id, count(*) AS dead
	FROM {queue} WHERE state = 2 AND ordering_key <> ''
	GROUP BY ordering_key ORDER BY min(id) LIMIT ?
) k CROSS JOIN {queue} q CROSS JOIN {messages} m
WHERE q.id = k.id AND m.id = k.id
ORDER BY k.id`

	deadErrors = `
SELECT m.name, substr(m.last_error, 1, ?) AS error, count(*) AS count, max(m.id) AS example,
	min(q.due) AS first, max(q.due) AS last
FROM (SELECT id, due FROM {queue} WHERE state = 2 ORDER BY id DESC LIMIT ?) q CROSS JOIN {messages} m
WHERE m.id = q.id
GROUP BY m.name, substr(m.last_error, 1, ?)
ORDER BY count(*) DESC, max(m.id) DESC
LIMIT ?`
)
