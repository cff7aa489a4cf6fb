package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/letterbox-go/letterbox/inbox"
)

const sweepLong = `Delete what is past its retention, in small transactions.

Processors do so by themselves. This program does not know how they are
configured, so the dedupe window has to be said: how long the identity of a
processed message is remembered. What is forgotten counts as new when it is
delivered again.`

const sweepExample = `  letterbox sweep --dedupe-window 30d --dry-run`

func (a *app) sweep() *cobra.Command {
	var ask assent
	var window, payloads, dead, pending duration
	cmd := &cobra.Command{
		Use: "sweep", Short: "Delete what is past its retention", Long: sweepLong, Example: sweepExample, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			if window <= 0 {
				return usage(cmd, "say the --dedupe-window, the one the processors have")
			}
			if payloads == 0 {
				payloads = -1 // with the row
			}
			repo, closeDB, err := a.open(ctx, inbox.Config{Retention: inbox.Retention{
				DedupeWindow: time.Duration(window), PayloadRetention: time.Duration(payloads),
				DeadRetention: time.Duration(dead), PendingRetention: time.Duration(pending),
			}})
			if err != nil {
				return err
			}
			defer closeDB()
			n, err := repo.SweepDryRun(ctx)
			if err != nil {
				return err
			}
			if ask.dryRun || n.Deleted+n.Payloads == 0 {
				return a.writeSweep(n, ask.dryRun)
			}
			question := fmt.Sprintf("Delete %s (%d dead, %d never processed) and %s?",
				count(n.Deleted, "message"), n.Dead, n.Pending, count(n.Payloads, "payload"))
			if err := a.confirm(ctx, ask.yes, question); err != nil {
				return err
			}
			bar := a.progress("sweeping", -1)
			n, err = repo.Sweep(ctx)
			a.end(bar)
			if writeErr := a.writeSweep(n, false); err == nil {
				err = writeErr
			}
			if err == nil && n.Busy {
				err = &stepError{err: fmt.Errorf("another sweep is under way"), next: "It does the same. Try again when it has ended."}
			}
			return err
		},
	}
	ask.add(cmd, true)
	flags := cmd.Flags()
	flags.Var(&window, "dedupe-window", "how long processed messages are kept: 30d, 720h (required)")
	flags.Var(&payloads, "payload-retention", "how long their payloads are kept (default: as long)")
	flags.Var(&dead, "dead-retention", "how long dead messages are kept (default: for ever)")
	flags.Var(&pending, "pending-retention", "how long messages are kept that were never processed (default: for ever)")
	return cmd
}

func (a *app) writeSweep(n inbox.SweepResult, dryRun bool) error {
	if a.output == "json" {
		return a.writeJSON(struct {
			Action   string `json:"action"`
			Count    int64  `json:"count"`
			DryRun   bool   `json:"dry_run"`
			Dead     int64  `json:"dead"`
			Pending  int64  `json:"pending"`
			Payloads int64  `json:"payloads"`
		}{"sweep", n.Deleted, dryRun, n.Dead, n.Pending, n.Payloads})
	}
	verb := "Deleted"
	if dryRun {
		verb = "Would delete"
	}
	return a.done("sweep", dryRun, n.Deleted, fmt.Sprintf("%s %s (%d dead, %d never processed) and %s.",
		verb, count(n.Deleted, "message"), n.Dead, n.Pending, count(n.Payloads, "payload")))
}
