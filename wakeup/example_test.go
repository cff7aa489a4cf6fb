package wakeup_test

import (
	"context"
	"log/slog"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/wakeup"
)

// Processes that accept and processes that process are set up alike.
func ExampleOpen() {
	run := func(ctx context.Context, db *bun.DB, dsn string, names *inbox.NameMap, config inbox.ProcessorConfig) error {
		waker, err := wakeup.Open(dsn, wakeup.Config{Logger: slog.Default()})
		if err != nil {
			return err
		}
		defer waker.Close()
		repo, err := inbox.NewRepository(db, names, inbox.Config{Waker: waker})
		if err != nil {
			return err
		}
		proc, err := inbox.NewProcessor(repo, config)
		if err != nil {
			return err
		}
		return proc.Run(ctx)
	}
	_ = run // with a database at hand
}
