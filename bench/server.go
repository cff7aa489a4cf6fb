package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/letterbox-go/letterbox/internal/testdb"
)

// serverSettings are those of a small production server. Commit timestamps cost
// every peer the same and are how drains are timed.
var serverSettings = map[string]string{
	"max_connections":        "1000",
	"max_wal_size":           "4GB",
	"shared_buffers":         "512MB",
	"track_commit_timestamp": "on",
}

// server is the PostgreSQL that all contenders share.
type server struct {
	dsn   string
	close func() error
	made  atomic.Int64 // databases
	keep  bool         // until the server goes: dropping each takes longer than a short run
}

// startServer starts a durable server, or takes the one of dsn.
func startServer(ctx context.Context, dsn string) (*server, error) {
	s := &server{dsn: dsn, close: func() error { return nil }}
	if dsn == "" {
		own, err := testdb.Start(ctx, testdb.Config{Durable: true, Settings: serverSettings})
		if err != nil {
			return nil, err
		}
		s.dsn, s.close = own.DSN(), own.Close
	}
	if err := s.check(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// check refuses a server on which the figures would mean something else.
func (s *server) check(ctx context.Context) error {
	return s.connected(ctx, func(conn *pgx.Conn) error {
		for _, setting := range []string{"fsync", "synchronous_commit", "track_commit_timestamp"} {
			var value string
			if err := conn.QueryRow(ctx, "SELECT current_setting($1)", setting).Scan(&value); err != nil {
				return err
			}
			if value != "on" {
				return fmt.Errorf("the server has %s = %s: set it to on and restart it, or leave out -dsn", setting, value)
			}
		}
		return nil
	})
}

func (s *server) version(ctx context.Context) (version string, err error) {
	err = s.connected(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "SHOW server_version").Scan(&version)
	})
	return version, err
}

func (s *server) connected(ctx context.Context, fn func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, s.dsn)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close(ctx)
	return fn(conn)
}

// create makes an empty database with the table of effects.
func (s *server) create(ctx context.Context) (*database, error) {
	u, err := url.Parse(s.dsn)
	if err != nil {
		return nil, errors.New("-dsn is not a URL")
	}
	name := fmt.Sprintf("letterbox_bench_%d_%d", time.Now().UnixNano(), s.made.Add(1))
	err = s.connected(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "CREATE DATABASE "+name+" TEMPLATE template0")
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("create database: %w", err)
	}
	u.Path = "/" + name
	d := &database{server: s, name: name, dsn: u.String()}
	if d.pool, err = openPool(ctx, d.dsn, 4); err == nil {
		_, err = d.pool.Exec(ctx, createEffects)
	}
	if err != nil {
		return nil, errors.Join(err, d.drop(ctx))
	}
	return d, nil
}

// database belongs to one contender.
type database struct {
	server *server
	name   string
	dsn    string
	pool   *pgxpool.Pool // the harness's own
}

func (d *database) drop(ctx context.Context) error {
	if d.pool != nil {
		d.pool.Close()
	}
	if d.server.keep {
		return nil
	}
	return d.server.connected(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "DROP DATABASE IF EXISTS "+d.name+" WITH (FORCE)")
		return err
	})
}

// settle brings the server to the same state before each measurement: nothing
// to write back, statistics up to date.
func (d *database) settle(ctx context.Context) error {
	var tables string
	if err := d.pool.QueryRow(ctx, ownTables).Scan(&tables); err != nil {
		return err
	}
	for _, statement := range []string{"VACUUM (ANALYZE) " + tables, "CHECKPOINT"} {
		if _, err := d.pool.Exec(ctx, statement); err != nil {
			return fmt.Errorf("settle: %w", err)
		}
	}
	return nil
}

// Without those of the catalog, which take longer than ours.
const ownTables = `
SELECT string_agg(format('%I', relname), ', ') FROM pg_class
WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace`

// openPool opens a pool of pgx's own kind: no database/sql in between, each text
// prepared once per connection.
func openPool(ctx context.Context, dsn string, connections int) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(connections)
	return pgxpool.NewWithConfig(ctx, config)
}
