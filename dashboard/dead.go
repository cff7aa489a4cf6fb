package dashboard

import (
	"html/template"
	"net/http"

	"github.com/letterbox-go/letterbox/inbox"
)

const (
	deadGroups = 200
	deadKeys   = 100
)

// deadGroup is dead messages with one error.
type deadGroup struct {
	inbox.DeadError
	Query template.URL // the filter that finds them
	Exact bool         // the filter finds these and no others
}

type deadView struct {
	Dead   int64
	Groups []deadGroup
	Keys   []inbox.ParkedKey
	More   bool // there are more groups than shown
}

func (d *dashboard) dead(w http.ResponseWriter, r *http.Request, v visitor) error {
	ctx := r.Context()
	stats, err := d.repo.Stats(ctx)
	if err != nil {
		return err
	}
	groups, err := d.repo.DeadErrors(ctx, deadGroups+1)
	if err != nil {
		return err
	}
	keys, err := d.repo.ParkedKeys(ctx, deadKeys)
	if err != nil {
		return err
	}
	view := deadView{Dead: stats.Dead, Keys: d.redactKeys(keys), More: len(groups) > deadGroups}
	for _, g := range groups[:min(len(groups), deadGroups)] {
		view.Groups = append(view.Groups, d.group(g))
	}
	return d.show(w, r, v, http.StatusOK, page{View: "dead", Title: "Dead messages", Section: "dead", Refresh: 10, Body: view})
}

// group makes the filter of a group. An error that is not shown whole must not
// appear in an address either.
func (d *dashboard) group(g inbox.DeadError) deadGroup {
	shown := d.redactError(inbox.Summary{ID: g.ExampleID, Identity: inbox.Identity{Name: g.Name}, Kind: inbox.Dead, LastError: g.Error})
	form := filterForm{Status: "dead", Name: g.Name}
	exact := shown == g.Error && g.Error != ""
	if exact {
		form.Error = g.Error
	}
	g.Error = shown
	return deadGroup{DeadError: g, Query: form.Query(), Exact: exact}
}
