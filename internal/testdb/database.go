package testdb

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// databasePrefix starts the name of every test database, so that leftovers on a
// server of somebody else's are recognised.
const databasePrefix = "letterbox_test_"

// createDatabase creates an empty database on the server of the URL admin and
// returns its name and its URL.
func createDatabase(ctx context.Context, admin string) (name, dsn string, err error) {
	u, err := parseURL(admin)
	if err != nil {
		return "", "", fmt.Errorf("create database: %w", err)
	}
	var random [8]byte
	rand.Read(random[:]) // never fails
	name = databasePrefix + hex.EncodeToString(random[:])

	conn, err := pgx.Connect(ctx, admin)
	if err != nil {
		return "", "", fmt.Errorf("create database: %w", err)
	}
	defer conn.Close(ctx)
	// template0, since nobody can be connected to it: a connection to template1
	// would make CREATE DATABASE fail.
	create := "CREATE DATABASE " + name + " TEMPLATE template0"
	copyFiles, err := prefersFileCopy(ctx, conn)
	if err != nil {
		return "", "", fmt.Errorf("create database: %w", err)
	}
	if copyFiles {
		create += " STRATEGY file_copy"
	}
	if _, err := conn.Exec(ctx, create); err != nil {
		return "", "", fmt.Errorf("create database: %w", err)
	}
	u.Path = "/" + name
	return name, u.String(), nil
}

// prefersFileCopy reports whether the server copies a template faster by file
// than through its log (the default since PostgreSQL 15, which knows the choice).
// Copying files ends in a checkpoint: twice as fast where that need not wait for
// the disk (55 instead of 105 ms), and slower where it must.
func prefersFileCopy(ctx context.Context, conn *pgx.Conn) (bool, error) {
	var prefers bool
	err := conn.QueryRow(ctx, `SELECT current_setting('server_version_num')::int >= 150000
		AND NOT current_setting('fsync')::bool`).Scan(&prefers)
	if err != nil {
		return false, fmt.Errorf("read settings: %w", err)
	}
	return prefers, nil
}

// dropDatabase drops a database and ends the connections it has.
func dropDatabase(ctx context.Context, admin, name string) error {
	conn, err := pgx.Connect(ctx, admin)
	if err != nil {
		return fmt.Errorf("drop database %s: %w", name, err)
	}
	defer conn.Close(ctx)
	// The server waits five seconds for the sessions it has told to go; on a very
	// busy machine one may still be there (object_in_use).
	for attempt := 1; ; attempt++ {
		_, err = conn.Exec(ctx, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
		if err == nil {
			return nil
		}
		var pgErr *pgconn.PgError
		if attempt == 3 || !errors.As(err, &pgErr) || pgErr.Code != "55006" {
			return fmt.Errorf("drop database %s: %w", name, err)
		}
	}
}
