package dashboard

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
)

// nameRow is what is known of a stored name.
type nameRow struct {
	Name string
	inbox.NameStats
	Processed, Failed int64 // in the last hour
	Servers           int   // processors alive that serve it
	PausedBy          string
	PausedAt          time.Time
}

type namesView struct {
	Names      []nameRow
	More       int // names that are not shown
	Processors []inbox.ProcessorInfo
}

// namesShown bounds a page: senders may choose names.
const namesShown = 500

func (d *dashboard) names(w http.ResponseWriter, r *http.Request, v visitor) error {
	ctx := r.Context()
	stats, err := d.repo.Stats(ctx)
	if err != nil {
		return err
	}
	minutes, err := d.repo.Minutes(ctx, time.Hour)
	if err != nil {
		return err
	}
	paused, err := d.repo.Paused(ctx)
	if err != nil {
		return err
	}
	processors, err := d.repo.Processors(ctx)
	if err != nil {
		return err
	}
	view := namesView{Names: nameRows(stats, minutes, paused, processors), Processors: firstProcessors(processors)}
	view.More = max(len(view.Names)-namesShown, 0)
	view.Names = view.Names[:len(view.Names)-view.More]
	for i := range view.Names {
		view.Names[i].Registered = d.repo.Names().Has(view.Names[i].Name)
	}
	return d.show(w, r, v, http.StatusOK, page{View: "names", Title: "Names", Section: "names", Refresh: 10, Body: view})
}

// nameRows gathers the names from everywhere, in order.
func nameRows(stats inbox.Stats, minutes []inbox.Minute, paused []inbox.PausedName, processors []inbox.ProcessorInfo) []nameRow {
	all := map[string]*nameRow{}
	row := func(name string) *nameRow {
		if all[name] == nil {
			all[name] = &nameRow{Name: name}
		}
		return all[name]
	}
	for name, n := range stats.Names {
		row(name).NameStats = n
	}
	for _, m := range minutes {
		row(m.Name).Processed += m.Processed
		row(m.Name).Failed += m.Failed + m.Died
	}
	for _, p := range paused {
		n := row(p.Name)
		n.Paused, n.PausedBy, n.PausedAt = true, p.Actor, p.PausedAt
	}
	for _, p := range processors {
		for _, name := range p.Names {
			if n := row(name); p.Alive {
				n.Servers++
			}
		}
	}
	rows := make([]nameRow, 0, len(all))
	for _, n := range all {
		rows = append(rows, *n)
	}
	slices.SortFunc(rows, func(a, b nameRow) int { return strings.Compare(a.Name, b.Name) })
	return rows
}
