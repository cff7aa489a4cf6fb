-- +goose Up
-- Letterbox inbox, version 2, SQLite 3.37 or newer. Only adds: version 1 can run beside it.

ALTER TABLE "inbox_messages" ADD COLUMN "payload_removed_at" TEXT; -- swept ahead of the row
ALTER TABLE "inbox_messages" ADD COLUMN "discarded_at" TEXT; -- dead, and given up by an operator

-- How often a cautious processor has started it without coming back.
ALTER TABLE "inbox_queue" ADD COLUMN "starts" INTEGER NOT NULL DEFAULT 0;

-- The last failed attempts of a message.
CREATE TABLE "inbox_attempts" (
    "id"         INTEGER NOT NULL, -- of the message
    "number"     INTEGER NOT NULL, -- in the order they were recorded
    "started_at" TEXT NOT NULL CHECK (length("started_at") = 27),
    "duration"   INTEGER NOT NULL, -- microseconds
    "processor"  TEXT NOT NULL,
    "error"      TEXT NOT NULL,
    PRIMARY KEY ("id", "number")
) STRICT, WITHOUT ROWID;

-- One row per running processor. One that lapses has crashed; it is kept for a day.
CREATE TABLE "inbox_processors" (
    "id"             TEXT NOT NULL PRIMARY KEY,
    "host"           TEXT NOT NULL,
    "pid"            INTEGER NOT NULL,
    "process"        TEXT NOT NULL, -- tells two processes with one pid apart
    "workers"        INTEGER NOT NULL,
    "names"          TEXT NOT NULL, -- JSON array of the names it serves
    "started_at"     TEXT NOT NULL CHECK (length("started_at") = 27),
    "seen_at"        TEXT NOT NULL CHECK (length("seen_at") = 27),
    "lapses_at"      TEXT NOT NULL CHECK (length("lapses_at") = 27),
    "cautious_until" TEXT -- set when the lapse was noticed
) STRICT;

CREATE TABLE "inbox_pauses" (
    "name"      TEXT NOT NULL PRIMARY KEY,
    "actor"     TEXT NOT NULL,
    "paused_at" TEXT NOT NULL CHECK (length("paused_at") = 27)
) STRICT;

-- What processors did, per minute: kept for a day, not exact after a crash.
CREATE TABLE "inbox_minutes" (
    "minute"    TEXT NOT NULL CHECK (length("minute") = 27),
    "name"      TEXT NOT NULL,
    "processed" INTEGER NOT NULL,
    "failed"    INTEGER NOT NULL,
    "died"      INTEGER NOT NULL,
    PRIMARY KEY ("minute", "name")
) STRICT, WITHOUT ROWID;

INSERT INTO "inbox_schema" ("version") VALUES (2);
