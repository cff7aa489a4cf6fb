package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/letterbox-go/letterbox/inbox"
)

const exportLong = `Write messages as JSON, one on each line, the newest first.

A payload that is JSON is written as it is, digit for digit; any other in
base64, as payload_base64.`

const exportExample = `  letterbox export --status dead --payload > dead.jsonl`

// exportPage is how many messages are read at once.
const exportPage = 500

func (a *app) export() *cobra.Command {
	var f filterFlags
	var payload, metadata bool
	var limit int64
	cmd := &cobra.Command{
		Use: "export", Short: "Write messages as lines of JSON", Long: exportLong, Example: exportExample, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := f.filter(cmd)
			if err != nil {
				return err
			}
			repo, closeDB, err := a.open(cmd.Context(), inbox.Config{})
			if err != nil {
				return err
			}
			defer closeDB()
			var bar *progress
			if !isTerminal(a.stdout) { // else the lines themselves show it
				bar = a.progress("exported", -1)
			}
			n, err := a.exportAll(cmd.Context(), repo, filter, limit, payload || metadata, payload, bar)
			a.end(bar)
			if err == nil {
				fmt.Fprintf(a.stderr, "%s exported.\n", count(n, "message"))
			}
			return err
		},
	}
	f.add(cmd, true)
	cmd.Flags().BoolVar(&payload, "payload", false, "with payloads, metadata and attempts")
	cmd.Flags().BoolVar(&metadata, "metadata", false, "with metadata and attempts")
	cmd.Flags().Int64Var(&limit, "limit", 0, "how many at most (default: all)")
	return cmd
}

func (a *app) exportAll(ctx context.Context, repo *inbox.Repository, filter inbox.Filter, limit int64, details, payload bool, bar *progress) (n int64, err error) {
	page := inbox.Page{Limit: exportPage}
	for {
		messages, next, err := repo.List(ctx, filter, page)
		if err != nil {
			return n, err
		}
		for i := range messages {
			if limit > 0 && n == limit {
				return n, nil
			}
			m := summaryJSON(&messages[i])
			if details {
				d, err := repo.Get(ctx, m.ID)
				if errors.Is(err, inbox.ErrNotFound) {
					continue // swept meanwhile
				}
				if err != nil {
					return n, err
				}
				m = detailsJSON(&d, payload)
			}
			if err := a.writeLine(m); err != nil {
				return n, err
			}
			n++
		}
		bar.set(n)
		if next == 0 {
			return n, nil
		}
		page.Before = next
	}
}

// count is "1 message", "2 messages".
func count(n int64, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
