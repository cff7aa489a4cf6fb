package dashboard

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
)

// overviewView is the first page.
type overviewView struct {
	Stats      inbox.Stats
	Chart      chart
	Names      []nameRow
	Sources    []sourceRow
	Processors []inbox.ProcessorInfo
	Alive      int // processors
	Workers    int // of those alive
	Lapsed     int
	Paused     []inbox.PausedName
	Unclaimed  []string
	More       int         // paused and unclaimed names that are not shown
	Jobs       []jobStatus // that run
}

// Calm reports that nothing asks for an operator.
func (o overviewView) Calm() bool {
	return o.Stats.Dead == 0 && len(o.Unclaimed) == 0 && len(o.Paused) == 0 && o.Lapsed == 0 && o.Stats.ParkedKeys == 0
}

// Idle reports that nobody processes.
func (o overviewView) Idle() bool { return o.Alive == 0 && o.Stats.Pending > 0 }

type sourceRow struct {
	Source string
	inbox.SourceStats
}

const (
	overviewNames   = 8
	overviewSources = 8
	overviewPaused  = 10
	processorRows   = 50
)

func (d *dashboard) overview(w http.ResponseWriter, r *http.Request, v visitor) error {
	ctx := r.Context()
	var view overviewView
	var err error
	if view.Stats, err = d.repo.Stats(ctx); err != nil {
		return err
	}
	minutes, err := d.repo.Minutes(ctx, time.Hour)
	if err != nil {
		return err
	}
	if view.Processors, err = d.repo.Processors(ctx); err != nil {
		return err
	}
	if view.Paused, err = d.repo.Paused(ctx); err != nil {
		return err
	}
	view.Chart = newChart(minutes, time.Now())
	for _, p := range view.Processors {
		if p.Alive {
			view.Alive++
			view.Workers += p.Workers
		} else {
			view.Lapsed++
		}
	}
	view.Names = busiest(nameRows(view.Stats, minutes, view.Paused, view.Processors))
	view.Processors = firstProcessors(view.Processors)
	view.More = max(len(view.Paused)-overviewPaused, 0) + max(len(view.Stats.Unclaimed)-overviewPaused, 0)
	view.Paused = view.Paused[:min(len(view.Paused), overviewPaused)]
	view.Unclaimed = view.Stats.Unclaimed[:min(len(view.Stats.Unclaimed), overviewPaused)]
	view.Sources = sourceRows(view.Stats)
	view.Jobs = d.jobs.running()
	return d.show(w, r, v, http.StatusOK, page{View: "overview", Title: "Overview", Section: "overview", Refresh: 5, Body: view})
}

// busiest are the names with the most dead, then the most pending messages.
func busiest(rows []nameRow) []nameRow {
	slices.SortStableFunc(rows, func(a, b nameRow) int {
		return cmp.Or(cmp.Compare(b.Dead, a.Dead), cmp.Compare(b.Pending, a.Pending), cmp.Compare(b.Processed, a.Processed))
	})
	return rows[:min(len(rows), overviewNames)]
}

// firstProcessors are those alive, then those that lapsed last: a program that
// crashes in a loop leaves many.
func firstProcessors(all []inbox.ProcessorInfo) []inbox.ProcessorInfo {
	slices.SortStableFunc(all, func(a, b inbox.ProcessorInfo) int {
		switch {
		case a.Alive == b.Alive:
			return b.SeenAt.Compare(a.SeenAt)
		case a.Alive:
			return -1
		}
		return 1
	})
	return all[:min(len(all), processorRows)]
}

func sourceRows(stats inbox.Stats) []sourceRow {
	var rows []sourceRow
	for _, source := range slices.Sorted(maps.Keys(stats.Sources)) {
		rows = append(rows, sourceRow{source, stats.Sources[source]})
	}
	slices.SortStableFunc(rows, func(a, b sourceRow) int {
		return cmp.Or(cmp.Compare(b.Dead, a.Dead), cmp.Compare(b.Pending, a.Pending))
	})
	return rows[:min(len(rows), overviewSources)]
}
