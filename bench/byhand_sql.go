package main

// The statements of byHand and setBased: those of the library, without what one
// name and one kind of handler do not need. A limit stands in the text, so that
// the plan that PostgreSQL keeps knows it.
const (
	byHandAcceptOne = `
WITH stored AS (
	INSERT INTO inbox_messages (source, message_id, name, ordering_key, payload, fingerprint, metadata, received_at)
	VALUES ($1, $2, $3, '', $4, $5, '', clock_timestamp())
	ON CONFLICT DO NOTHING
	RETURNING id, name, received_at
)` + byHandQueue

	byHandAcceptAndWake = `
WITH stored AS (
	INSERT INTO inbox_messages (source, message_id, name, ordering_key, payload, fingerprint, metadata, received_at)
	VALUES ($1, $2, $3, '', $4, $5, '', clock_timestamp())
	ON CONFLICT DO NOTHING
	RETURNING id, name, received_at
), woken AS MATERIALIZED (
	SELECT pg_notify('bench', '')
)
INSERT INTO inbox_queue (id, name, ordering_key, due)
SELECT id, name, '', received_at FROM stored, woken`

	// Sorted, so that overlapping batches cannot deadlock.
	byHandAcceptMany = `
WITH stored AS (
	INSERT INTO inbox_messages (source, message_id, name, ordering_key, payload, fingerprint, metadata, received_at)
	SELECT $1, message_id, $3, '', payload, fingerprint, '', clock_timestamp()
	FROM unnest($2::text[], $4::bytea[], $5::bytea[]) AS u (message_id, payload, fingerprint)
	ORDER BY message_id COLLATE "C"
	ON CONFLICT DO NOTHING
	RETURNING id, name, received_at
)` + byHandQueue

	byHandQueue = `
INSERT INTO inbox_queue (id, name, ordering_key, due)
SELECT id, name, '', received_at FROM stored`

	byHandListen = `LISTEN bench`

	byHandClaim = `
WITH claimed AS MATERIALIZED (` + byHandDue + `)
SELECT c.id, c.due, m.payload
FROM claimed c JOIN inbox_messages m ON m.id = c.id
ORDER BY c.due, c.id`

	byHandDue = `
	SELECT id, due FROM inbox_queue
	WHERE name = $1 AND state = 0 AND due <= statement_timestamp() AND (due, id) > ($2, $3)
	ORDER BY due, id
	LIMIT %d
	FOR UPDATE SKIP LOCKED
`

	byHandSettle = `
WITH done AS (
	DELETE FROM inbox_queue WHERE id = ANY ($1::bigint[]) RETURNING id
)
UPDATE inbox_messages SET status = 1, processed_at = clock_timestamp()
WHERE id = ANY ($1::bigint[]) AND status = 0 AND (SELECT count(*) FROM done) = $2`

	// Claim, effect and settlement in one statement, which is its own transaction.
	setBasedAll = `
WITH claimed AS MATERIALIZED (` + byHandDue + `), done AS (
	DELETE FROM inbox_queue WHERE id = ANY (ARRAY (SELECT id FROM claimed))
), settled AS (
	UPDATE inbox_messages SET status = 1, processed_at = clock_timestamp()
	WHERE id = ANY (ARRAY (SELECT id FROM claimed)) AND status = 0
	RETURNING message_id, convert_from(payload, 'UTF8')::json AS body
), effect AS (
	INSERT INTO effects (message_id, account, cents)
	SELECT message_id, body ->> 'account', (body ->> 'cents')::bigint FROM settled
)
SELECT count(*), max(due), max(id) FROM claimed`
)
