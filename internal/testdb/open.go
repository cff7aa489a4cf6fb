package testdb

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/driver/pgdriver"
	_ "modernc.org/sqlite" // registers the driver "sqlite"
)

const (
	// postgresConnections leaves room for a dozen pools on the server's 300.
	postgresConnections = 20
	sqliteConnections   = 8

	execMode = "default_query_exec_mode"

	// sqlitePragmas: the time-out comes first, since changing the journal mode
	// may have to wait for another connection that does the same.
	sqlitePragmas = "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate&_pragma=foreign_keys(1)"
)

// OpenPGX opens a PostgreSQL URL with pgx through database/sql. Its
// default_query_exec_mode is exec unless the URL says otherwise: bun writes
// arguments into the text, and pgx would prepare every text anew. It does not
// connect yet; the pool holds at most 20 connections.
func OpenPGX(dsn string) (*bun.DB, error) {
	u, err := parseURL(dsn)
	if err != nil {
		return nil, fmt.Errorf("open with pgx: %w", err)
	}
	query := u.Query()
	if !query.Has(execMode) {
		query.Set(execMode, "exec")
		u.RawQuery = query.Encode()
	}
	config, err := pgx.ParseConfig(u.String())
	if err != nil {
		return nil, fmt.Errorf("open with pgx: %w", err)
	}
	return postgresDB(stdlib.OpenDB(*config)), nil
}

// OpenPGDriver opens a PostgreSQL URL with bun's pgdriver. A parameter meant for
// pgx is dropped, and without sslmode the connection is a plain one (pgdriver
// would insist on TLS). pgdriver's own limits are left alone: a read that takes
// longer than 10 seconds fails. It does not connect yet; the pool holds at most
// 20 connections.
func OpenPGDriver(dsn string) (*bun.DB, error) {
	u, err := parseURL(dsn)
	if err != nil {
		return nil, fmt.Errorf("open with pgdriver: %w", err)
	}
	query := u.Query()
	query.Del(execMode)
	if !query.Has("sslmode") {
		query.Set("sslmode", "disable")
	}
	u.RawQuery = query.Encode()
	return postgresDB(sql.OpenDB(pgdriver.NewConnector(pgdriver.WithDSN(u.String())))), nil
}

// OpenSQLite opens a SQLite file, made on first use, with modernc.org/sqlite:
// WAL, a busy time-out of 10 seconds, foreign keys, and transactions that take
// the write lock when they begin. The pool holds at most 8 connections.
func OpenSQLite(path string) (*bun.DB, error) {
	// As a URI, so that no character of the path is taken for the query.
	file := "file:" + (&url.URL{Path: path}).EscapedPath() + sqlitePragmas
	db, err := sql.Open("sqlite", file)
	if err != nil {
		return nil, fmt.Errorf("open with sqlite: %w", err)
	}
	db.SetMaxOpenConns(sqliteConnections)
	db.SetMaxIdleConns(sqliteConnections)
	return bun.NewDB(db, sqlitedialect.New()), nil
}

func postgresDB(db *sql.DB) *bun.DB {
	db.SetMaxOpenConns(postgresConnections)
	db.SetMaxIdleConns(postgresConnections)
	return bun.NewDB(db, pgdialect.New())
}

func parseURL(dsn string) (*url.URL, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		// The error of url.Parse shows the whole text, password included.
		return nil, errors.New("not a valid URL")
	}
	if u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return nil, errors.New("not a URL that starts with postgres://")
	}
	return u, nil
}
