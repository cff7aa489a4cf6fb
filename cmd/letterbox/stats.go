package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/letterbox-go/letterbox/inbox"
)

func (a *app) stats() *cobra.Command {
	var watch bool
	every := duration(2 * time.Second)
	cmd := &cobra.Command{
		Use: "stats", Short: "Count messages per status and name", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if every <= 0 {
				return usage(cmd, "--interval must be positive")
			}
			repo, closeDB, err := a.open(cmd.Context(), inbox.Config{})
			if err != nil {
				return err
			}
			defer closeDB()
			if !watch {
				return a.writeStats(cmd.Context(), repo)
			}
			return a.watchStats(cmd.Context(), repo, time.Duration(every))
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "again and again, until it is interrupted")
	cmd.Flags().Var(&every, "interval", "how often to --watch")
	return cmd
}

// clearScreen is written to terminals only.
const clearScreen = "\x1b[H\x1b[2J"

// watchStats ends with ctx, which is no failure.
func (a *app) watchStats(ctx context.Context, repo *inbox.Repository, every time.Duration) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		if isTerminal(a.stdout) && a.output != "json" {
			fmt.Fprint(a.stdout, clearScreen)
		}
		if err := a.writeStats(ctx, repo); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

type statsJSON struct {
	Pending       int64              `json:"pending"`
	Failing       int64              `json:"failing"`
	Parked        int64              `json:"parked"`
	ParkedKeys    int64              `json:"parked_keys"`
	Dead          int64              `json:"dead"`
	Processed     int64              `json:"processed"`
	Estimated     bool               `json:"processed_is_estimated"`
	OldestSeconds float64            `json:"oldest_due_seconds"`
	Processors    int                `json:"processors"`
	Paused        []string           `json:"paused"`
	Unclaimed     []string           `json:"unclaimed"`
	Names         map[string]nameRow `json:"names"`
}

type nameRow struct {
	Pending       int64   `json:"pending"`
	Failing       int64   `json:"failing"`
	Parked        int64   `json:"parked"`
	Dead          int64   `json:"dead"`
	OldestSeconds float64 `json:"oldest_due_seconds"`
	Paused        bool    `json:"paused"`
	Claimed       bool    `json:"claimed"`
}

func (a *app) writeStats(ctx context.Context, repo *inbox.Repository) error {
	s, err := repo.Stats(ctx)
	if err != nil {
		return err
	}
	processors, err := repo.Processors(ctx)
	if err != nil {
		return err
	}
	alive := 0
	for _, p := range processors {
		if p.Alive {
			alive++
		}
	}
	if a.output == "json" {
		out := statsJSON{
			Pending: s.Pending, Failing: s.Failing, Parked: s.Parked, ParkedKeys: s.ParkedKeys, Dead: s.Dead,
			Processed: s.Processed, Estimated: s.Estimated, OldestSeconds: s.OldestDue.Seconds(), Processors: alive,
			Paused: append([]string{}, s.Paused...), Unclaimed: append([]string{}, s.Unclaimed...), Names: map[string]nameRow{},
		}
		for name, n := range s.Names {
			out.Names[name] = nameRow{n.Pending, n.Failing, n.Parked, n.Dead, n.OldestDue.Seconds(), n.Paused, n.Claimed}
		}
		return a.writeJSON(out)
	}
	t := newTable(a.stdout)
	processed := strconv.FormatInt(s.Processed, 10)
	if s.Estimated {
		processed = "about " + processed
	}
	t.row("pending", fmt.Sprintf("%d (%d failing, %d parked)", s.Pending, s.Failing, s.Parked))
	t.row("dead", fmt.Sprintf("%d (%s held up)", s.Dead, count(s.ParkedKeys, "ordering key")))
	t.row("processed", processed)
	t.row("oldest due for", since(s.OldestDue))
	t.row("processors", strconv.Itoa(alive))
	if err := t.flush(); err != nil || len(s.Names) == 0 {
		return err
	}
	fmt.Fprintln(a.stdout)
	t = newTable(a.stdout, "NAME", "PENDING", "FAILING", "PARKED", "DEAD", "OLDEST DUE FOR", "NOTE")
	for _, name := range slices.Sorted(maps.Keys(s.Names)) {
		n := s.Names[name]
		var notes []string
		if n.Paused {
			notes = append(notes, "paused")
		}
		if n.Pending > 0 && !n.Claimed {
			notes = append(notes, "no processor")
		}
		t.row(cell(name), strconv.FormatInt(n.Pending, 10), strconv.FormatInt(n.Failing, 10), strconv.FormatInt(n.Parked, 10),
			strconv.FormatInt(n.Dead, 10), since(n.OldestDue), strings.Join(notes, ", "))
	}
	return t.flush()
}
