package sqlstore

const (
	// postgresCreate: ids are compared by bytes, whatever the database's collation.
	postgresCreate = `
CREATE TABLE {dedupe} (
	"scope"      text COLLATE "C" NOT NULL,
	"id"         text COLLATE "C" NOT NULL CHECK ("id" <> ''),
	"token"      text COLLATE "C" NOT NULL CHECK ("token" <> ''),
	"confirmed"  boolean NOT NULL,
	"expires_at" timestamptz NOT NULL,
	PRIMARY KEY ("scope", "id")
)`
	postgresCreateIndex = `CREATE INDEX {index} ON {dedupe} ("expires_at")`

	postgresMigrated = `
SELECT EXISTS (
	SELECT 1 FROM pg_catalog.pg_tables
	WHERE CASE WHEN ? = '' THEN schemaname = ANY (current_schemas(FALSE)) ELSE schemaname = ? END AND tablename = ?
)`

	// postgresReserve writes nothing when somebody is in the way. No row at all
	// means that the key was taken while the statement ran.
	postgresReserve = `
WITH clock AS MATERIALIZED (
	SELECT clock_timestamp() AS now
), other AS MATERIALIZED (
	SELECT d."confirmed", d."expires_at" - clock.now AS remaining
	FROM {dedupe} AS d, clock
	WHERE d."scope" = ? AND d."id" = ? AND d."expires_at" > clock.now AND (d."confirmed" OR d."token" <> ?)
), taken AS (
	INSERT INTO {dedupe} AS d ("scope", "id", "token", "confirmed", "expires_at")
	SELECT ?, ?, ?, FALSE, clock.now + ? * interval '1 microsecond'
	FROM clock WHERE NOT EXISTS (SELECT 1 FROM other)
	ON CONFLICT ("scope", "id") DO UPDATE
	SET "token" = excluded."token", "confirmed" = FALSE, "expires_at" = excluded."expires_at"
	WHERE d."expires_at" <= clock_timestamp() OR (d."token" = excluded."token" AND NOT d."confirmed")
	RETURNING 1
)
SELECT FALSE AS other, FALSE AS confirmed, 0::bigint AS remaining FROM taken
UNION ALL
SELECT TRUE, "confirmed", (EXTRACT(EPOCH FROM remaining) * 1000000)::bigint FROM other`

	postgresConfirmHeld = `
UPDATE {dedupe} SET "confirmed" = TRUE,
	"expires_at" = CASE WHEN "confirmed" THEN GREATEST("expires_at", clock_timestamp() + ? * interval '1 microsecond')
		ELSE clock_timestamp() + ? * interval '1 microsecond' END
WHERE "scope" = ? AND "id" = ? AND "token" = ? AND "expires_at" > clock_timestamp()`

	postgresConfirmAnyway = `
INSERT INTO {dedupe} AS d ("scope", "id", "token", "confirmed", "expires_at")
VALUES (?, ?, ?, TRUE, clock_timestamp() + ? * interval '1 microsecond')
ON CONFLICT ("scope", "id") DO UPDATE
SET "token" = excluded."token", "confirmed" = TRUE, "expires_at" = excluded."expires_at"
WHERE NOT (d."confirmed" AND d."expires_at" > excluded."expires_at")`

	postgresRelease = `
DELETE FROM {dedupe} WHERE "scope" = ? AND "id" = ? AND "token" = ? AND NOT "confirmed"
RETURNING "expires_at" > clock_timestamp()`

	// postgresCleanup looks again before it deletes, and leaves locked rows for
	// the next time.
	postgresCleanup = `
WITH expired AS MATERIALIZED (
	SELECT "scope", "id" FROM {dedupe} WHERE "expires_at" <= statement_timestamp()
	ORDER BY "expires_at" LIMIT ? FOR UPDATE SKIP LOCKED
)
DELETE FROM {dedupe} AS d USING expired
WHERE d."scope" = expired."scope" AND d."id" = expired."id" AND d."expires_at" <= statement_timestamp()`
)
