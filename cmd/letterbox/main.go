// Command letterbox is the operator's command line of the inbox: what is stuck,
// why, and how to get it going again.
//
//	export DATABASE_URL=postgres://app@db/app
//	letterbox doctor
//	letterbox list --status dead
//	letterbox retry-all --name credit_account --dry-run
//
// letterbox --help lists the commands. PostgreSQL is reached through pgx, SQLite
// through modernc.org/sqlite.
//
// It exits with 0 when all went well, 1 on a failure or a critical finding of the
// doctor, and 2 when it was called in the wrong way. Results go to standard
// output, everything else to standard error.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
