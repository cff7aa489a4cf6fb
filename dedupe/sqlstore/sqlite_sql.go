package sqlstore

const (
	// sqliteCreate: times are microseconds since 1970.
	sqliteCreate = `
CREATE TABLE IF NOT EXISTS {dedupe} (
	"scope"      TEXT NOT NULL,
	"id"         TEXT NOT NULL CHECK ("id" <> ''),
	"token"      TEXT NOT NULL CHECK ("token" <> ''),
	"confirmed"  INTEGER NOT NULL CHECK ("confirmed" IN (0, 1)),
	"expires_at" INTEGER NOT NULL,
	PRIMARY KEY ("scope", "id")
) STRICT`
	sqliteCreateIndex = `CREATE INDEX IF NOT EXISTS {index} ON {dedupe} ("expires_at")`

	// sqliteOther is asked first: reading needs no lock.
	sqliteOther = `
SELECT "confirmed", "expires_at" FROM {dedupe}
WHERE "scope" = ? AND "id" = ? AND "expires_at" > ? AND ("confirmed" OR "token" <> ?)`

	sqliteReserve = `
INSERT INTO {dedupe} ("scope", "id", "token", "confirmed", "expires_at") VALUES (?, ?, ?, 0, ?)
ON CONFLICT ("scope", "id") DO UPDATE
SET "token" = excluded."token", "confirmed" = 0, "expires_at" = excluded."expires_at"
WHERE "expires_at" <= ? OR ("token" = excluded."token" AND NOT "confirmed")`

	sqliteConfirmHeld = `
UPDATE {dedupe} SET "confirmed" = 1,
	"expires_at" = CASE WHEN "confirmed" THEN max("expires_at", ?) ELSE ? END
WHERE "scope" = ? AND "id" = ? AND "token" = ? AND "expires_at" > ?`

	sqliteConfirmAnyway = `
INSERT INTO {dedupe} ("scope", "id", "token", "confirmed", "expires_at") VALUES (?, ?, ?, 1, ?)
ON CONFLICT ("scope", "id") DO UPDATE
SET "token" = excluded."token", "confirmed" = 1, "expires_at" = excluded."expires_at"
WHERE NOT ("confirmed" AND "expires_at" > excluded."expires_at")`

	sqliteRelease = `
DELETE FROM {dedupe} WHERE "scope" = ? AND "id" = ? AND "token" = ? AND NOT "confirmed"
RETURNING "expires_at" > ?`

	sqliteCleanup = `
DELETE FROM {dedupe} WHERE rowid IN (
	SELECT rowid FROM {dedupe} WHERE "expires_at" <= ? ORDER BY "expires_at" LIMIT ?
) AND "expires_at" <= ?`
)
