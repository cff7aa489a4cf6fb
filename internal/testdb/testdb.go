package testdb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/uptrace/bun"
)

// The environment variables, see the package comment.
const (
	envURL      = "LETTERBOX_TEST_POSTGRES"
	envBinaries = "LETTERBOX_TEST_PGBIN"
	envRequire  = "LETTERBOX_REQUIRE_POSTGRES"
	envCI       = "CI"
)

// databaseTimeout bounds the creation and the drop of one database, which take
// a tenth of a second unless the machine is very busy.
const databaseTimeout = time.Minute

// errNoPostgres says that this machine has no PostgreSQL and none could be
// downloaded: a reason to skip. Every other error is a failure.
var errNoPostgres = errors.New("no PostgreSQL")

// Postgres returns the URL (postgres://...) of a new, empty database on the
// server that all tests of this binary share. The database is dropped after the
// test, with whatever connections it still has. Without a PostgreSQL the test is
// skipped, or fails, as the package comment says.
//
// The URL suits psql, pgx and pgdriver alike; open it with [OpenPGX] or
// [OpenPGDriver], which add what each driver needs.
func Postgres(tb testing.TB) string {
	tb.Helper()
	admin, err := sharedServer()
	if err != nil {
		unavailable(tb, err)
	}
	ctx, cancel := context.WithTimeout(tb.Context(), databaseTimeout)
	defer cancel()
	name, dsn, err := createDatabase(ctx, admin)
	if err != nil {
		tb.Fatalf("testdb: %v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), databaseTimeout)
		defer cancel()
		if err := dropDatabase(ctx, admin, name); err != nil {
			tb.Errorf("testdb: %v", err)
		}
	})
	return dsn
}

// PGX returns a database from [Postgres], opened with [OpenPGX] and closed after
// the test.
func PGX(tb testing.TB) *bun.DB {
	tb.Helper()
	return opened(tb, OpenPGX, Postgres(tb))
}

// PGDriver returns a database from [Postgres], opened with [OpenPGDriver] and
// closed after the test.
func PGDriver(tb testing.TB) *bun.DB {
	tb.Helper()
	return opened(tb, OpenPGDriver, Postgres(tb))
}

// SQLite returns a database on a new file, opened with [OpenSQLite] and closed
// after the test.
func SQLite(tb testing.TB) *bun.DB {
	tb.Helper()
	return opened(tb, OpenSQLite, SQLiteFile(tb))
}

// SQLiteFile returns the path of a database file in a temporary directory that
// the test has to itself. The file does not exist yet.
func SQLiteFile(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(tb.TempDir(), "letterbox.db")
}

// StartServer starts a server that the test has to itself, to restart or kill
// it; it is closed after the test. Without PostgreSQL binaries the test is
// skipped or fails as in [Postgres].
func StartServer(tb testing.TB, config Config) *Server {
	tb.Helper()
	server, err := Start(tb.Context(), config)
	if err != nil {
		unavailable(tb, err)
	}
	tb.Cleanup(func() {
		if err := server.Close(); err != nil {
			tb.Errorf("testdb: %v", err)
		}
	})
	return server
}

// sharedServer returns the URL of the server for all tests of this binary,
// started if need be. Nobody closes that one: the watchdog does, once the
// process has ended.
var sharedServer = sync.OnceValues(func() (string, error) {
	if url := os.Getenv(envURL); url != "" {
		if _, err := parseURL(url); err != nil {
			return "", fmt.Errorf("%s: %w", envURL, err)
		}
		return url, nil
	}
	server, err := Start(context.Background(), Config{})
	if err != nil {
		return "", err
	}
	return server.DSN(), nil
})

// opened opens dsn and closes the database after the test.
func opened(tb testing.TB, open func(string) (*bun.DB, error), dsn string) *bun.DB {
	tb.Helper()
	db, err := open(dsn)
	if err != nil {
		tb.Fatalf("testdb: %v", err)
	}
	tb.Cleanup(func() {
		if err := db.Close(); err != nil {
			tb.Errorf("testdb: close database: %v", err)
		}
	})
	return db
}

// unavailable ends the test: skipped if there simply is no PostgreSQL here and
// nobody insists on one, failed otherwise.
func unavailable(tb testing.TB, err error) {
	tb.Helper()
	if !errors.Is(err, errNoPostgres) {
		tb.Fatalf("testdb: %v", err)
	}
	line := fmt.Sprintf("testdb: install PostgreSQL (the server) or set %s to a URL: %v", envURL, err)
	if os.Getenv(envCI) != "" || os.Getenv(envRequire) != "" {
		tb.Fatal(line)
	}
	tb.Skip(line)
}
