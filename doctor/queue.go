package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
)

// queue looks at what is waiting, and at who serves it.
func (e *examination) queue(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, e.config.Timeout)
	defer cancel()
	if e.stats, err = e.repo.Stats(ctx); err != nil {
		return err
	}
	if e.processors, err = e.repo.Processors(ctx); err != nil {
		return err
	}
	e.backlog()
	e.crashed()
	if e.alive() == 0 {
		e.noProcessor()
		return nil
	}
	e.unserved()
	e.lag()
	return nil
}

// byAge returns the unfinished names, the one that waits longest first.
func (e *examination) byAge(keep func(inbox.NameStats) bool) []string {
	names := slices.Sorted(maps.Keys(e.stats.Names))
	names = slices.DeleteFunc(names, func(name string) bool { return !keep(e.stats.Names[name]) })
	slices.SortStableFunc(names, func(a, b string) int {
		return cmp.Compare(e.stats.Names[b].OldestDue, e.stats.Names[a].OldestDue)
	})
	return names
}

// waiting is a line about a name.
func (e *examination) waiting(name string) string {
	n := e.stats.Names[name]
	line := fmt.Sprintf("%s: %d pending", quote(name), n.Pending)
	for _, part := range []struct {
		count int64
		word  string
	}{{n.Failing, "failing"}, {n.Parked, "parked"}, {n.Dead, "dead"}} {
		if part.count > 0 {
			line += fmt.Sprintf(", %d %s", part.count, part.word)
		}
	}
	if n.OldestDue > 0 {
		line += ", the oldest due for " + age(n.OldestDue)
	}
	return line
}

func (e *examination) lines(names []string) []string {
	lines := make([]string, len(names))
	for i, name := range names {
		lines[i] = e.waiting(name)
	}
	return lines
}

// backlog says what is there.
func (e *examination) backlog() {
	names := e.byAge(func(inbox.NameStats) bool { return true })
	if len(names) > 0 {
		e.find("backlog", Info, fmt.Sprintf("%s pending, %d dead", plural(e.stats.Pending, "message"), e.stats.Dead), "", e.lines(names)...)
	}
}

// lag looks for served messages that wait too long.
func (e *examination) lag() {
	names := e.byAge(func(n inbox.NameStats) bool { return n.Claimed && !n.Paused && n.OldestDue > e.config.MaxAge })
	if len(names) == 0 {
		return
	}
	e.find("lag", graded(e.stats.Names[names[0]].OldestDue, e.config.MaxAge),
		"Messages of "+plural(int64(len(names)), "name")+" wait longer than "+age(e.config.MaxAge),
		"Look for slow or failing handlers first, then for the other findings here; then add workers or processors.",
		e.lines(names)...)
}

// noProcessor looks for due messages that nobody can process.
func (e *examination) noProcessor() {
	names := e.byAge(func(n inbox.NameStats) bool { return !n.Paused && n.OldestDue > 0 })
	if len(names) == 0 {
		return
	}
	oldest := e.stats.Names[names[0]].OldestDue
	e.find("no-processor", graded(oldest, e.config.MaxAge), "Messages are due, and no processor is running",
		"Start the program that calls Processor.Run, and read its log if it ends. Programs that only use Drain or Process leave no trace here: ignore this finding then.",
		e.lines(names)...)
}

// unserved looks for names that no running processor knows.
func (e *examination) unserved() {
	names := e.byAge(func(n inbox.NameStats) bool { return n.Pending > 0 && !n.Claimed && !n.Paused })
	if len(names) == 0 {
		return
	}
	e.find("unserved-names", Warning, "No running processor serves "+plural(int64(len(names)), "name"),
		"Deploy a processor that has them registered and bound. After a change of a name, register the old one as a former name.",
		e.lines(names)...)
}

// dead groups dead messages by their error.
func (e *examination) dead(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, e.config.Timeout)
	defer cancel()
	groups, err := e.repo.DeadErrors(ctx, e.config.MaxEvidence+1)
	if err != nil || len(groups) == 0 {
		return err
	}
	var lines []string
	for _, g := range groups {
		lines = append(lines, fmt.Sprintf("%d of %s, the last at %s, for example %d: %s",
			g.Count, quote(g.Name), at(&g.Last), g.ExampleID, quote(g.Error)))
	}
	e.find("dead-messages", Warning, plural(max(e.stats.Dead, 1), "message")+" dead",
		"Fix the cause, then letterbox retry-all --name NAME; letterbox edit or discard where the message itself is wrong.", lines...)
	return nil
}

// parked looks for ordering keys behind a dead message.
func (e *examination) parked(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, e.config.Timeout)
	defer cancel()
	keys, err := e.repo.ParkedKeys(ctx, e.config.MaxEvidence+1)
	if err != nil {
		return err
	}
	var lines []string
	for _, k := range keys {
		lines = append(lines, fmt.Sprintf("key %s: %d of %s is dead since %s, %d wait behind it: %s",
			quote(k.Key), k.ID, quote(k.Name), at(&k.Since), k.Waiting, quote(k.LastError)))
	}
	waiting := slices.ContainsFunc(keys, func(k inbox.ParkedKey) bool { return k.Waiting > 0 })
	if waiting {
		e.find("parked-keys", Warning, "Dead messages hold up "+plural(max(e.stats.ParkedKeys, 1), "ordering key"),
			"Retry the dead message once its cause is fixed, discard it, or let the others go on: letterbox skip-key KEY.", lines...)
	}
	return nil
}

// pausedLong is after what time a pause looks forgotten.
const pausedLong = 24 * time.Hour

// paused looks for names that an operator has paused.
func (e *examination) paused(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, e.config.Timeout)
	defer cancel()
	paused, err := e.repo.Paused(ctx)
	if err != nil || len(paused) == 0 {
		return err
	}
	severity := Info
	var lines []string
	for _, p := range paused {
		if e.now.Sub(p.PausedAt) > pausedLong {
			severity = Warning
		}
		by := ""
		if p.Actor != "" {
			by = " by " + quote(p.Actor)
		}
		lines = append(lines, fmt.Sprintf("%s%s since %s, %d pending", quote(p.Name), by, at(&p.PausedAt), e.stats.Names[p.Name].Pending))
	}
	e.find("paused-names", severity, plural(int64(len(paused)), "name")+" paused", "letterbox resume NAME, once the reason is gone.", lines...)
	return nil
}
