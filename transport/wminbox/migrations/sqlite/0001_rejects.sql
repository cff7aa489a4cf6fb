-- +goose Up
-- Letterbox, messages that a Watermill subscriber could not accept, version 1, SQLite 3.37 or newer.
-- Apply it with any tool, or call Park.Migrate. One row per message, redeliveries only count.
CREATE TABLE "inbox_rejects" (
    "id"         INTEGER PRIMARY KEY AUTOINCREMENT,
    "digest"     BLOB NOT NULL UNIQUE, -- SHA-256 of topic, uuid, payload and metadata
    "topic"      TEXT NOT NULL,
    "handler"    TEXT NOT NULL,
    "reason"     TEXT NOT NULL,
    "detail"     TEXT NOT NULL,
    "uuid"       BLOB NOT NULL, -- as received: may be any bytes
    "payload"    BLOB NOT NULL,
    "metadata"   BLOB NOT NULL, -- JSON object; invalid UTF-8 in it is replaced
    "deliveries" INTEGER NOT NULL DEFAULT 1 CHECK ("deliveries" >= 1),
    "first_at"   TEXT NOT NULL CHECK (length("first_at") = 27),
    "last_at"    TEXT NOT NULL CHECK (length("last_at") = 27)
) STRICT;
