package wminbox

// parkPostgresLock serialises migrations of one table until the transaction ends.
const parkPostgresLock = `SELECT pg_advisory_xact_lock(hashtextextended('letterbox rejects ' || ?, 0))`

// parkPostgresExists names pg_class, because to_regclass alone answers from the
// session's cache of names, which is brought up to date when a relation is locked:
// a process that has waited for the lock would not see the table of the one before.
const parkPostgresExists = `SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_class WHERE oid = to_regclass(?))`

const parkPostgres = `
INSERT INTO {rejects} AS r ("digest", "topic", "handler", "reason", "detail", "uuid", "payload", "metadata", "first_at", "last_at")
VALUES (?, ?, ?, ?, ?, ?, ?, ?, clock_timestamp(), clock_timestamp())
ON CONFLICT ("digest") DO UPDATE SET "deliveries" = r."deliveries" + 1, "last_at" = EXCLUDED."last_at"`

const parkSQLite = `
INSERT INTO {rejects} AS r ("digest", "topic", "handler", "reason", "detail", "uuid", "payload", "metadata", "first_at", "last_at")
VALUES (?, ?, ?, ?, ?, ?, ?, ?, strftime('%Y-%m-%dT%H:%M:%f000Z', 'now'), strftime('%Y-%m-%dT%H:%M:%f000Z', 'now'))
ON CONFLICT ("digest") DO UPDATE SET "deliveries" = r."deliveries" + 1, "last_at" = EXCLUDED."last_at"`
