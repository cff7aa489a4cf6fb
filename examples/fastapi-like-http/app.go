package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/mediator"
)

const (
	handlerTimeout = 5 * time.Second
	shutdownGrace  = 5 * time.Second
)

// app is what the routes and the processor share.
type app struct {
	db   *bun.DB
	repo *inbox.Repository
	log  *slog.Logger
}

// newApp makes the tables that are missing, those of the inbox and our own.
func newApp(ctx context.Context, db *bun.DB, log *slog.Logger) (*app, error) {
	names := inbox.NewNameMap()
	inbox.Register[CreditPix](names, creditPixName)
	repo, err := inbox.NewRepository(db, names, inbox.Config{Logger: log})
	if err != nil {
		return nil, err
	}
	if err := repo.Migrate(ctx); err != nil {
		return nil, err
	}
	if err := createAccounts(ctx, db); err != nil {
		return nil, fmt.Errorf("set up accounts: %w", err)
	}
	return &app{db: db, repo: repo, log: log}, nil
}

// processor credits what was accepted.
func (a *app) processor(backoff inbox.Backoff) (*inbox.Processor, error) {
	requests := mediator.NewRequestMap()
	mediator.BindCommand(requests, creditPix(a.db))
	config := inbox.ProcessorConfig{
		Requests:      mediator.NewRequestMediator(requests),
		Timeout:       handlerTimeout,
		ShutdownGrace: shutdownGrace,
		Backoff:       backoff,
	}
	if a.db.Dialect().Name() == dialect.PG {
		// One account per transaction: two batches that lock the same
		// accounts in different orders would be a deadlock. It would be
		// resolved, but after a second each time.
		config.BatchSize = 1
	} else {
		config.Workers = 1 // SQLite has one writer
	}
	return inbox.NewProcessor(a.repo, config)
}
