-- +goose Up
-- Letterbox inbox, version 1, SQLite 3.37 or newer. Apply it with any tool, or call Repository.Migrate.
-- Times are text, always 2006-01-02T15:04:05.000000Z, so that they compare as they read.

-- One row per identity: history, dedupe memory, what operators look at.
CREATE TABLE "inbox_messages" (
    "id"           INTEGER PRIMARY KEY AUTOINCREMENT,
    "source"       TEXT NOT NULL,
    "message_id"   TEXT NOT NULL CHECK ("message_id" <> ''),
    "name"         TEXT NOT NULL CHECK ("name" <> ''),
    "ordering_key" TEXT NOT NULL,
    "payload"      BLOB,
    "fingerprint"  BLOB,
    "metadata"     TEXT NOT NULL,
    "status"       INTEGER NOT NULL DEFAULT 0 CHECK ("status" IN (0, 1, 2)), -- pending, processed, dead
    "attempts"     INTEGER NOT NULL DEFAULT 0 CHECK ("attempts" >= 0),
    "last_error"   TEXT NOT NULL DEFAULT '',
    "received_at"  TEXT NOT NULL CHECK (length("received_at") = 27),
    "processed_at" TEXT CHECK ("processed_at" IS NULL OR length("processed_at") = 27),
    CHECK (("status" = 1) = ("processed_at" IS NOT NULL))
) STRICT;

CREATE UNIQUE INDEX "inbox_messages_identity" ON "inbox_messages" ("source", "message_id", "name");

-- One narrow row per message that is not settled for good.
CREATE TABLE "inbox_queue" (
    "id"            INTEGER PRIMARY KEY,
    "name"          TEXT NOT NULL,
    "ordering_key"  TEXT NOT NULL,
    "due"           TEXT NOT NULL CHECK (length("due") = 27),
    "attempts"      INTEGER NOT NULL DEFAULT 0 CHECK ("attempts" >= 0),
    "interruptions" INTEGER NOT NULL DEFAULT 0 CHECK ("interruptions" >= 0),
    "state"         INTEGER NOT NULL DEFAULT 0 CHECK ("state" IN (0, 1, 2)) -- claimable, parked, dead
) STRICT;

CREATE INDEX "inbox_queue_claim" ON "inbox_queue" ("name", "due", "id") WHERE "state" = 0;
CREATE INDEX "inbox_queue_key" ON "inbox_queue" ("ordering_key", "id") WHERE "ordering_key" <> '';
CREATE INDEX "inbox_queue_dead" ON "inbox_queue" ("name", "id") WHERE "state" = 2;

CREATE TABLE "inbox_schema" (
    "version"    INTEGER NOT NULL PRIMARY KEY,
    "applied_at" TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')) CHECK (length("applied_at") = 27)
) STRICT;

INSERT INTO "inbox_schema" ("version") VALUES (1);
