// Package sqlstore keeps the keys of a dedupe guard in PostgreSQL or SQLite.
//
// # Quick start
//
//	store, err := sqlstore.New(db, sqlstore.Config{}) // db is a *bun.DB
//	err = store.Migrate(ctx)
//	guard, err := dedupe.New(dedupe.Config{Store: store})
//
// The keys are in a table of their own, inbox_dedupe by default; nothing else of
// the inbox is needed. Call the guard's CleanupExpired now and then: expired rows
// are harmless but stay until then.
//
// # Guarantee
//
// Each method is one statement that commits by itself, or a few of which each
// leaves the table in order. It never joins the caller's transaction and needs no
// session state. Times are the database's (SQLite runs in this process, so its
// clock is the process's). A deadlock, serialization failure or busy SQLite file
// is tried again a few times.
//
// # Databases
//
// PostgreSQL 13 or newer through any driver under bun; with pgx set
// default_query_exec_mode=exec. SQLite through modernc.org/sqlite, opened with
// _pragma=busy_timeout(30000) and _pragma=journal_mode(WAL). PostgreSQL's
// synchronous_commit = off lets a crash of the database forget keys that were
// confirmed in its last moments: each may run once more.
//
// # Concurrency
//
// A Store is safe for concurrent use, by any number of processes.
//
// # What it does not do
//
// It takes a second connection when it is called while a transaction is open.
// Inside one on SQLite it would wait for the write lock that the caller holds:
// do not call the guard there.
//
// # Testing
//
// The tests run package dedupetest on both databases and both PostgreSQL drivers.
package sqlstore
