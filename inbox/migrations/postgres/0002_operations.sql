-- +goose Up
-- Letterbox inbox, version 2, PostgreSQL 13 or newer. Only adds: version 1 can run beside it.

ALTER TABLE "inbox_messages"
    ADD COLUMN "payload_removed_at" timestamptz, -- swept ahead of the row
    ADD COLUMN "discarded_at"       timestamptz; -- dead, and given up by an operator

-- How often a cautious processor has started it without coming back.
ALTER TABLE "inbox_queue" ADD COLUMN "starts" integer NOT NULL DEFAULT 0;

-- The last failed attempts of a message.
CREATE TABLE "inbox_attempts" (
    "id"         bigint NOT NULL, -- of the message
    "number"     integer NOT NULL, -- in the order they were recorded
    "started_at" timestamptz NOT NULL,
    "duration"   bigint NOT NULL, -- microseconds
    "processor"  text NOT NULL,
    "error"      text NOT NULL,
    CONSTRAINT "inbox_attempts_pkey" PRIMARY KEY ("id", "number")
);

-- One row per running processor. One that lapses has crashed; it is kept for a day.
CREATE TABLE "inbox_processors" (
    "id"             text NOT NULL,
    "host"           text NOT NULL,
    "pid"            bigint NOT NULL,
    "process"        text NOT NULL, -- tells two processes with one pid apart
    "workers"        integer NOT NULL,
    "names"          text NOT NULL, -- JSON array of the names it serves
    "started_at"     timestamptz NOT NULL,
    "seen_at"        timestamptz NOT NULL,
    "lapses_at"      timestamptz NOT NULL,
    "cautious_until" timestamptz, -- set when the lapse was noticed
    CONSTRAINT "inbox_processors_pkey" PRIMARY KEY ("id")
);

CREATE TABLE "inbox_pauses" (
    "name"      text COLLATE "C" NOT NULL,
    "actor"     text NOT NULL,
    "paused_at" timestamptz NOT NULL,
    CONSTRAINT "inbox_pauses_pkey" PRIMARY KEY ("name")
);

-- What processors did, per minute: kept for a day, not exact after a crash.
CREATE TABLE "inbox_minutes" (
    "minute"    timestamptz NOT NULL,
    "name"      text COLLATE "C" NOT NULL,
    "processed" bigint NOT NULL,
    "failed"    bigint NOT NULL,
    "died"      bigint NOT NULL,
    CONSTRAINT "inbox_minutes_pkey" PRIMARY KEY ("minute", "name")
);

INSERT INTO "inbox_schema" ("version") VALUES (2);
