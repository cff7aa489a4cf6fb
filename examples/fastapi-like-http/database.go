package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	_ "modernc.org/sqlite" // the driver "sqlite"
)

const (
	postgresConnections = 16
	sqliteConnections   = 8
	connectTimeout      = 5 * time.Second
	cleanUpTimeout      = 10 * time.Second

	// sqliteSettings: the time-out is longer than the handler's; transactions
	// take the write lock when they begin, or they could fail in the middle.
	sqliteSettings = "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=foreign_keys(1)&_txlock=immediate"
)

func isPostgres(dsn string) bool {
	return strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://")
}

// openDatabase opens a PostgreSQL URL or a SQLite file. It does not connect yet.
func openDatabase(dsn string) (*bun.DB, error) {
	if isPostgres(dsn) {
		return openPostgres(dsn, "")
	}
	if dsn == "" || strings.Contains(dsn, "://") {
		return nil, errors.New("-dsn takes a URL that starts with postgres://, or the path of a SQLite file")
	}
	// As a URI, so that no character of the path is taken for a setting.
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: dsn}).EscapedPath()+sqliteSettings)
	if err != nil {
		return nil, fmt.Errorf("open SQLite: %w", err)
	}
	db.SetMaxOpenConns(sqliteConnections)
	db.SetMaxIdleConns(sqliteConnections)
	return bun.NewDB(db, sqlitedialect.New()), nil
}

// openPostgres opens a PostgreSQL URL; with a schema given, tables are looked up
// and created only there.
func openPostgres(dsn, schema string) (*bun.DB, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("-dsn: %w", err) // pgx leaves the password out
	}
	// bun writes arguments into the text, so that each text is another one: pgx
	// should not prepare them.
	if u, err := url.Parse(dsn); err != nil || !u.Query().Has("default_query_exec_mode") {
		config.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}
	if schema != "" {
		config.RuntimeParams["search_path"] = schema
	}
	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(postgresConnections)
	db.SetMaxIdleConns(postgresConnections)
	return bun.NewDB(db, pgdialect.New()), nil
}

// openTemporary opens a database for the demo alone. On PostgreSQL it is a schema
// of its own in the database of dsn; else a SQLite file, in a temporary directory
// if dsn is empty. Call remove when done: it closes and removes all of it.
func openTemporary(ctx context.Context, dsn string) (db *bun.DB, remove func() error, err error) {
	if isPostgres(dsn) {
		return openTemporarySchema(ctx, dsn)
	}
	clean := func() error { return removeSQLite(dsn) }
	if dsn == "" {
		directory, err := os.MkdirTemp("", "letterbox-demo-")
		if err != nil {
			return nil, nil, err
		}
		dsn = filepath.Join(directory, "demo.db")
		clean = func() error { return os.RemoveAll(directory) }
	} else if _, err := os.Stat(dsn); err == nil {
		return nil, nil, fmt.Errorf("-demo wants a database of its own, and %s exists", dsn)
	}
	if db, err = openDatabase(dsn); err != nil {
		return nil, nil, errors.Join(err, clean())
	}
	return db, func() error { return errors.Join(db.Close(), clean()) }, nil
}

// removeSQLite removes a file and what SQLite puts beside it.
func removeSQLite(file string) (err error) {
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if e := os.Remove(file + suffix); !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

func openTemporarySchema(ctx context.Context, dsn string) (db *bun.DB, remove func() error, err error) {
	schema := "letterbox_demo_" + strings.ToLower(rand.Text()[:12])
	if db, err = openPostgres(dsn, schema); err != nil {
		return nil, nil, err
	}
	if _, err := db.ExecContext(ctx, "CREATE SCHEMA ?", bun.Ident(schema)); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("create a schema: %w", err), db.Close())
	}
	return db, func() error {
		// The demo may have been interrupted.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
		defer cancel()
		_, err := db.ExecContext(ctx, "DROP SCHEMA ? CASCADE", bun.Ident(schema))
		return errors.Join(err, db.Close())
	}, nil
}
