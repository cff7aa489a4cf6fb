package main

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/mediator"
	"github.com/letterbox-go/letterbox/transport/wminbox"
)

// tablePrefix keeps the example apart from whatever is in a PostgreSQL database
// already; its tables are dropped at the end.
const tablePrefix = "letterbox_example"

// order is the one type on the topic.
type order struct {
	Producer string `json:"producer"`
	Number   int    `json:"number"`
}

// app is the inbox with its processor.
type app struct {
	db        *bun.DB
	where     string
	names     *inbox.NameMap
	repo      *inbox.Repository
	park      *wminbox.Park
	processor *inbox.Processor
}

func openApp(ctx context.Context, dsn, dir string, logger *slog.Logger) (*app, error) {
	a := &app{names: inbox.NewNameMap()}
	if err := a.open(dsn, dir); err != nil {
		return nil, err
	}
	inbox.Register[order](a.names, "order")
	var err error
	if a.repo, err = inbox.NewRepository(a.db, a.names, inbox.Config{Prefix: tablePrefix, Logger: logger}); err != nil {
		return nil, err
	}
	if a.park, err = wminbox.NewPark(a.db, wminbox.ParkConfig{Prefix: tablePrefix}); err != nil {
		return nil, err
	}
	a.drop(ctx) // what an interrupted run left
	if err := errors.Join(a.repo.Migrate(ctx), a.park.Migrate(ctx)); err != nil {
		return nil, err
	}
	if _, err := a.db.ExecContext(ctx, `CREATE TABLE letterbox_example_shipments (producer TEXT NOT NULL, number INTEGER NOT NULL)`); err != nil {
		return nil, err
	}
	requests := mediator.NewRequestMap()
	mediator.BindCommand(requests, a.ship)
	a.processor, err = inbox.NewProcessor(a.repo, inbox.ProcessorConfig{Requests: mediator.NewRequestMediator(requests)})
	return a, err
}

// ship is the handler. The table has no unique index on purpose: a second effect
// would be seen.
func (a *app) ship(ctx context.Context, o order) error {
	if o.Number < 0 {
		return inbox.Permanent(errors.New("there is no such number"))
	}
	_, err := inbox.DB(ctx, a.db).NewRaw(`INSERT INTO letterbox_example_shipments (producer, number) VALUES (?, ?)`, o.Producer, o.Number).Exec(ctx)
	return err
}

func (a *app) open(dsn, dir string) error {
	if strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://") {
		config, err := pgx.ParseConfig(dsn)
		if err != nil {
			return errors.New("-dsn is not a valid PostgreSQL URL") // the error shows the password
		}
		config.DefaultQueryExecMode = pgx.QueryExecModeExec
		pool := stdlib.OpenDB(*config)
		pool.SetMaxOpenConns(16)
		a.db, a.where = bun.NewDB(pool, pgdialect.New()), "PostgreSQL"
		return nil
	}
	if dsn != "" {
		return errors.New("-dsn takes a URL that starts with postgres://")
	}
	file := "file:" + (&url.URL{Path: filepath.Join(dir, "inbox.db")}).EscapedPath()
	pool, err := sql.Open("sqlite", file+"?_pragma=busy_timeout(30000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	if err != nil {
		return err
	}
	a.db, a.where = bun.NewDB(pool, sqlitedialect.New()), "SQLite"
	return nil
}

func (a *app) drop(ctx context.Context) {
	for _, table := range []string{"messages", "queue", "schema", "rejects", "shipments"} {
		_, _ = a.db.ExecContext(ctx, `DROP TABLE IF EXISTS "`+tablePrefix+`_`+table+`"`)
	}
}

func (a *app) close() {
	a.drop(context.Background())
	_ = a.db.Close()
}

// count runs a query that counts.
func (a *app) count(ctx context.Context, query string) (n int, err error) {
	err = a.db.NewRaw(query).Scan(ctx, &n)
	return n, err
}
