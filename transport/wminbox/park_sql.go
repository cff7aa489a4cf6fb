package wminbox

// parkPostgresLock serialises migrations of one table until the transaction ends.
const parkPostgresLock = `SELECT pg_advisory_xact_lock(hashtextextended('letterbox rejects ' || ?, 0))`

const parkPostgres = `
INSERT INTO {rejects} AS r ("digest", "topic", "handler", "reason", "detail", "uuid", "payload", "metadata", "first_at", "last_at")
VALUES (?, ?, ?, ?, ?, ?, ?, ?, clock_timestamp(), clock_timestamp())
ON CONFLICT ("digest") DO UPDATE SET "deliveries" = r."deliveries" + 1, "last_at" = EXCLUDED."last_at"`

const parkSQLite = `
INSERT INTO {rejects} AS r ("digest", "topic", "handler", "reason", "detail", "uuid", "payload", "metadata", "first_at", "last_at")
VALUES (?, ?, ?, ?, ?, ?, ?, ?, strftime('%Y-%m-%dT%H:%M:%f000Z', 'now'), strftime('%Y-%m-%dT%H:%M:%f000Z', 'now'))
ON CONFLICT ("digest") DO UPDATE SET "deliveries" = r."deliveries" + 1, "last_at" = EXCLUDED."last_at"`
