package main

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/letterbox-go/letterbox/internal/testdb"
)

var (
	familyLine = regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`)
	sampleLine = regexp.MustCompile(`(?m)^([a-z_]+)\{([^}]*)\}`)
	labelName  = regexp.MustCompile(`([a-z_]+)="`)
	metricName = regexp.MustCompile(`\b(?:inbox|messaging)_[a-z_]+`)
	selector   = regexp.MustCompile(`\{([^}]*)\}`)
	grouping   = regexp.MustCompile(`by \(([^)]*)\)`)
	legend     = regexp.MustCompile(`\{\{(\w+)\}\}`)
)

// exported reads what /metrics shows: the names that can be queried, with the
// labels of their samples, and the families.
func exported(t *testing.T, text string) (names map[string]map[string]bool, families []string) {
	t.Helper()
	for _, family := range familyLine.FindAllStringSubmatch(text, -1) {
		if strings.HasPrefix(family[1], "inbox_") || strings.HasPrefix(family[1], "messaging_") {
			families = append(families, family[1])
		}
	}
	names = map[string]map[string]bool{}
	for _, sample := range sampleLine.FindAllStringSubmatch(text, -1) {
		labels := names[sample[1]]
		if labels == nil {
			labels = map[string]bool{"job": true} // Prometheus adds it
			names[sample[1]] = labels
		}
		for _, label := range labelName.FindAllStringSubmatch(sample[2], -1) {
			labels[label[1]] = true
		}
	}
	return names, families
}

// query is an expression of the dashboard.
type query struct{ panel, expr, legend string }

func dashboard(t *testing.T) (queries []query) {
	t.Helper()
	text, err := os.ReadFile("../../docs/grafana-dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
		Templating struct {
			List []struct {
				Name  string
				Query any
			}
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	for _, p := range board.Panels {
		if len(p.Targets) == 0 {
			t.Errorf("%s: no query", p.Title)
		}
		for _, target := range p.Targets {
			queries = append(queries, query{p.Title, target.Expr, target.LegendFormat})
		}
	}
	for _, v := range board.Templating.List {
		if text, ok := v.Query.(map[string]any); ok {
			queries = append(queries, query{panel: v.Name, expr: text["query"].(string)})
		}
	}
	return queries
}

func TestTheDashboardAsksForWhatIsExported(t *testing.T) {
	t.Parallel()
	text, _ := played(t, testdb.SQLite(t))
	names, families := exported(t, text)
	if len(families) != 11 {
		t.Errorf("%d metrics are exported, want 11: %v", len(families), families)
	}
	asked := map[string]bool{}
	for _, q := range dashboard(t) {
		bare := selector.ReplaceAllString(grouping.ReplaceAllString(q.expr, ""), "")
		found := metricName.FindAllString(bare, -1)
		if len(found) == 0 {
			t.Errorf("%s: no metric in %s", q.panel, q.expr)
		}
		for _, name := range found {
			asked[name] = true
			if names[name] == nil {
				t.Errorf("%s: %s is not exported", q.panel, name)
				continue
			}
			for _, label := range labelsOf(q) {
				if !names[name][label] {
					t.Errorf("%s: %s has no label %s", q.panel, name, label)
				}
			}
		}
	}
	for _, family := range families {
		if !asked[family] && !asked[family+"_bucket"] {
			t.Errorf("%s is on no panel", family)
		}
	}
}

// labelsOf are the labels that a query selects, groups and shows by.
func labelsOf(q query) (labels []string) {
	for _, s := range selector.FindAllStringSubmatch(q.expr, -1) {
		for part := range strings.SplitSeq(s[1], ",") {
			labels = append(labels, strings.TrimSpace(part[:strings.IndexAny(part, "=!")]))
		}
	}
	for _, g := range grouping.FindAllStringSubmatch(q.expr, -1) {
		for label := range strings.SplitSeq(g[1], ",") {
			labels = append(labels, strings.TrimSpace(label))
		}
	}
	for _, l := range legend.FindAllStringSubmatch(q.legend, -1) {
		labels = append(labels, l[1])
	}
	return labels
}

func TestTheGuideNamesEveryMetric(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../docs/telemetry.md")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := played(t, testdb.SQLite(t))
	names, families := exported(t, text)
	for _, family := range families {
		if !strings.Contains(string(guide), "`"+family+"`") {
			t.Errorf("%s is not in the guide", family)
		}
		for label := range names[family] {
			if strings.HasPrefix(label, "inbox_") && !strings.Contains(string(guide), strings.ReplaceAll(label, "_", ".")) {
				t.Errorf("%s of %s is not in the guide", label, family)
			}
		}
	}
}
