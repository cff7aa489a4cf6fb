// Command fastapi-like-http is a bank that receives Pix credit notifications
// from a payment provider, who sends again until he is answered. Each one is
// credited once. See README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// options are the command line.
type options struct {
	addr, role, dsn string
	demo            bool
}

func (o *options) serves() bool    { return o.role != "worker" }
func (o *options) processes() bool { return o.role != "api" }

func parseOptions(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("fastapi-like-http", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.addr, "addr", "127.0.0.1:8080", "address to listen on; port 0 takes a free one")
	flags.StringVar(&o.role, "role", "all", "api (accept only), worker (process only), or all")
	flags.StringVar(&o.dsn, "dsn", "", "postgres://user:password@host/database, or the path of a SQLite file (default letterbox-example.db)")
	flags.BoolVar(&o.demo, "demo", false, "run the whole story on a database that is removed afterwards, check it, and exit")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if roles := []string{"api", "worker", "all"}; !slices.Contains(roles, o.role) {
		return o, fmt.Errorf("-role is one of %s", strings.Join(roles, ", "))
	}
	if o.dsn == "" && !o.demo {
		o.dsn = "letterbox-example.db"
	}
	return o, nil
}

// run is main without the process around it.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parseOptions(args, stderr)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	if o.demo {
		return runDemo(ctx, o.dsn, stdout, log)
	}
	db, err := openDatabase(o.dsn)
	if err != nil {
		return err
	}
	app, err := newApp(ctx, db, log)
	if err == nil {
		err = app.serve(ctx, &o, stdout)
	}
	return errors.Join(err, db.Close())
}
