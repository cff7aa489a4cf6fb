package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/letterbox-go/letterbox/inbox"
)

const retryAllLong = `Let all dead messages that match run again, the oldest first.

It works in small transactions while processors run, and may be interrupted:
what was retried stays retried, and the same command does the rest.`

const retryAllExample = `  letterbox retry-all --name credit_account --error "connection refused"
  letterbox retry-all --after 2h --per-second 100 --yes`

func (a *app) retryAll() *cobra.Command {
	var f filterFlags
	var ask assent
	var options inbox.RetryAllOptions
	cmd := &cobra.Command{
		Use: "retry-all", Short: "Let all dead messages that match run again", Long: retryAllLong, Example: retryAllExample, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			filter, err := f.filter(cmd)
			if err != nil {
				return err
			}
			if options.Limit < 0 || options.BatchSize < 1 || options.PerSecond < 0 {
				return usage(cmd, "--limit, --batch-size and --per-second must not be negative")
			}
			repo, closeDB, err := a.open(ctx, inbox.Config{})
			if err != nil {
				return err
			}
			defer closeDB()
			counting := options
			counting.DryRun = true
			n, err := repo.RetryAll(ctx, filter, counting)
			if err != nil {
				return err
			}
			if n == 0 || ask.dryRun {
				return a.done("retry-all", ask.dryRun, n, fmt.Sprintf("%s%s match.", count(n, "dead message"), f.describe()))
			}
			if err := a.confirm(ctx, ask.yes, fmt.Sprintf("Retry %s%s?", count(n, "dead message"), f.describe())); err != nil {
				return err
			}
			bar := a.progress("retried", n)
			options.Progress = bar.set
			n, err = repo.RetryAll(ctx, filter, options)
			a.end(bar)
			if doneErr := a.done("retry-all", false, n, fmt.Sprintf("Retried %s.", count(n, "dead message"))); err == nil {
				err = doneErr
			}
			return err
		},
	}
	f.add(cmd, false)
	ask.add(cmd, true)
	cmd.Flags().Int64Var(&options.Limit, "limit", 0, "how many at most (default: all)")
	cmd.Flags().IntVar(&options.BatchSize, "batch-size", 500, "how many share a transaction")
	cmd.Flags().IntVar(&options.PerSecond, "per-second", 0, "how many a second at most (default: no bound)")
	return cmd
}
