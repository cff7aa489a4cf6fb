package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/letterbox-go/letterbox/doctor"
	"github.com/letterbox-go/letterbox/inbox"
)

const doctorLong = `Explain what makes the inbox slow or puts it in danger, and what to do.

It reads, and changes nothing. It exits with 1 when a finding is critical.
docs/doctor.md describes each finding.`

func (a *app) doctor() *cobra.Command {
	var config doctor.Config
	var broker, window duration
	maxAge, snapshotAge := duration(5*time.Minute), duration(5*time.Minute)
	cmd := &cobra.Command{
		Use: "doctor", Short: "Explain what is slow, stuck or in danger, and what to do", Long: doctorLong, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			repo, closeDB, err := a.openAny(inbox.Config{Retention: inbox.Retention{DedupeWindow: time.Duration(window)}}, true)
			if err != nil {
				return err
			}
			defer closeDB()
			config.Outside = true
			config.BrokerRetention = time.Duration(broker)
			config.MaxAge, config.SnapshotAge = time.Duration(maxAge), time.Duration(snapshotAge)
			report, err := doctor.Examine(cmd.Context(), repo, config)
			if err != nil {
				return err
			}
			if a.output == "json" {
				err = a.writeJSON(report)
			} else {
				err = a.writeReport(report)
			}
			if err == nil && report.Worst() == doctor.Critical {
				err = &stepError{err: errCritical, next: "Begin with those. docs/doctor.md says more about each."}
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.Var(&maxAge, "max-age", "how long a due message may wait")
	flags.Var(&snapshotAge, "snapshot-age", "how long a transaction may stay open")
	flags.Var(&broker, "broker-retention", "for how long the broker can deliver again (default: not examined)")
	flags.Var(&window, "dedupe-window", "the one the processors have (default 30d)")
	flags.StringSliceVar(&config.Ignore, "ignore", nil, "findings to leave out")
	flags.BoolVar(&config.ShowQueries, "show-queries", false, "show the text of running queries")
	return cmd
}

func (a *app) writeReport(report doctor.Report) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, examined at %s\n", inert(report.Database), stamp(report.ExaminedAt))
	for _, f := range report.Findings {
		fmt.Fprintf(&b, "\n%-8s  %s (%s)\n", strings.ToUpper(f.Severity.String()), inert(f.Title), f.ID)
		for _, line := range f.Evidence {
			fmt.Fprintf(&b, "          %s\n", inert(line))
		}
		for line := range strings.SplitSeq(f.Remedy, "\n") {
			if line != "" {
				fmt.Fprintf(&b, "       -> %s\n", inert(line))
			}
		}
	}
	if report.Worst() <= doctor.Info {
		fmt.Fprintf(&b, "\nNothing is wrong.\n")
	}
	_, err := fmt.Fprint(a.stdout, b.String())
	return err
}
