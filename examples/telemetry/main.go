// Command telemetry shows an inbox from outside: metrics for Prometheus, traces on
// stdout, and the two probes of an orchestrator.
//
//	go run ./examples/telemetry
//
// sends itself a few messages a second, some of them twice and some that fail, until
// Ctrl-C. Meanwhile:
//
//	curl http://127.0.0.1:8080/metrics     what Prometheus scrapes
//	curl http://127.0.0.1:8080/readyz      is there a reason to send no work here?
//	curl http://127.0.0.1:8080/livez       is there a reason to restart it?
//
// docs/grafana-dashboard.json draws the metrics, docs/telemetry.md explains them. The
// database is a temporary SQLite file; -dsn postgres://... takes PostgreSQL.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/internal/testdb"
)

func main() {
	dsn := flag.String("dsn", "", "postgres://...; default: a temporary SQLite file")
	address := flag.String("addr", "127.0.0.1:8080", "where to listen")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := start(ctx, *dsn, *address); err != nil {
		fmt.Fprintln(os.Stderr, "telemetry:", err)
		os.Exit(1)
	}
}

func start(ctx context.Context, dsn, address string) (err error) {
	db, remove, err := open(dsn)
	if err != nil {
		return err
	}
	defer remove()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	a, err := newApp(ctx, db, os.Stdout, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer func() { err = errors.Join(err, a.close()) }()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := &http.Server{Handler: a.handler, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 3)
	go func() { ended <- server.Serve(listener) }()
	go func() { ended <- a.processor.Run(ctx) }()
	go func() { ended <- a.sendForever(ctx, "http://"+listener.Addr().String()) }()
	fmt.Fprintf(os.Stderr, "http://%s/metrics, /readyz, /livez; Ctrl-C ends it\n", listener.Addr())

	err = <-ended // the context ended, or one of them cannot go on
	cancel()
	shutdown, done := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer done()
	err = errors.Join(err, server.Shutdown(shutdown), <-ended, <-ended)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// open returns the database, and a function that closes it and removes what is temporary.
func open(dsn string) (db *bun.DB, remove func(), err error) {
	if dsn != "" {
		if db, err = testdb.OpenPGX(dsn); err != nil {
			return nil, nil, err
		}
		return db, func() { _ = db.Close() }, nil
	}
	dir, err := os.MkdirTemp("", "letterbox-telemetry-")
	if err != nil {
		return nil, nil, err
	}
	if db, err = testdb.OpenSQLite(filepath.Join(dir, "inbox.db")); err != nil {
		return nil, nil, err
	}
	return db, func() {
		_ = db.Close()
		_ = os.RemoveAll(dir)
	}, nil
}
