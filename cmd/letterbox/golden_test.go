package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

var times = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// golden are calls in this order on one inbox. What they print is the same on
// both databases.
var golden = []struct {
	name  string
	stdin string
	args  []string
}{
	{"help", "", []string{"--help"}},
	{"migrate-status", "", []string{"migrate", "status"}},
	{"migrate-again", "", []string{"migrate", "up"}},
	{"stats", "", []string{"stats"}},
	{"stats-json", "", []string{"stats", "-o", "json"}},
	{"list", "", []string{"list"}},
	{"list-page", "", []string{"list", "--limit", "2", "--from", "6"}},
	{"list-dead-json", "", []string{"list", "--status", "dead", "--error", "BOOM", "-o", "json"}},
	{"list-none", "", []string{"list", "--name", "nobody"}},
	{"show", "", []string{"show", "3"}},
	{"show-hidden", "", []string{"show", "4"}},
	{"show-base64", "", []string{"show", "4", "--payload"}},
	{"show-payload", "", []string{"show", "1", "--payload"}},
	{"show-text", "", []string{"show", "6", "--payload"}},
	{"show-json", "", []string{"show", "4", "--payload", "-o", "json"}},
	{"export", "", []string{"export", "--status", "dead"}},
	{"export-payload", "", []string{"export", "--payload"}},
	{"export-limit", "", []string{"export", "--metadata", "--limit", "1"}},
	{"retry-dry", "", []string{"retry", "2", "4", "--dry-run"}},
	{"retry-refused", "", []string{"retry", "2", "1"}},
	{"retry-all-dry", "", []string{"retry-all", "--name", "credit", "--dry-run"}},
	{"retry-all-refused", "y\n", []string{"retry-all", "--source", "psp"}},
	{"discard-refused", "y\n", []string{"discard", "6"}},
	{"discard-dry", "", []string{"discard", "6", "--dry-run"}},
	{"edit-dry", `{"amount":1}`, []string{"edit", "6", "--file", "-", "--dry-run"}},
	{"edit-bad", `{`, []string{"edit", "6", "--file", "-", "--yes"}},
	{"skip-none", "", []string{"skip-key", "nobody\x1b[2J", "--yes"}},
	{"skip-dry", "", []string{"skip-key", "acct-1", "--dry-run", "-o", "json"}},
	{"pause", "", []string{"pause", "credit"}},
	{"stats-paused", "", []string{"stats"}},
	{"resume", "", []string{"resume", "credit"}},
	{"skip", "", []string{"skip-key", "acct-1", "--yes"}},
	{"edit", `{"amount":1}`, []string{"edit", "6", "--file", "-", "--yes"}},
	{"discard", "", []string{"discard", "4", "--yes"}},
	{"discard-again", "", []string{"discard", "4", "--yes"}},
	{"retry", "", []string{"retry", "2", "-o", "json"}},
	{"retry-all-none", "", []string{"retry-all", "--yes"}},
	{"sweep-dry", "", []string{"sweep", "--dedupe-window", "1ms", "--dry-run"}},
	{"sweep-refused", "", []string{"sweep", "--dedupe-window", "1ms"}},
	{"sweep", "", []string{"sweep", "--dedupe-window", "1ms", "--yes", "-o", "json"}},
	{"list-after", "", []string{"list", "--status", "discarded"}},
}

func TestGolden(t *testing.T) {
	t.Parallel()
	places(t, func(t *testing.T, p *place) {
		p.fill(t)
		for _, g := range golden {
			code, stdout, stderr := p.call(t, g.stdin, g.args...)
			inertText(t, g.name, stdout)
			inertText(t, g.name, stderr)
			got := times.ReplaceAllString(fmt.Sprintf("$ letterbox %s\n%s--- standard error\n%s--- exit code %d\n",
				inert(strings.Join(g.args, " ")), stdout, stderr, code), "TIME")
			file := filepath.Join("testdata", g.name+".golden")
			if *update && strings.Contains(t.Name(), "sqlite") {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil && !*update {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" && !*update {
				t.Errorf("%s (-want +got):\n%s", g.name, diff)
			}
		}
	})
}

// What a dry run counts is what the sweep then removes.
func TestSweepCountsFirst(t *testing.T) {
	t.Parallel()
	places(t, func(t *testing.T, p *place) {
		p.fill(t)
		p.exec(t, `UPDATE inbox_queue SET due = '2020-01-01T00:00:00.000000Z' WHERE id IN (3, 5)`)
		for _, c := range []struct {
			says string
			args []string
		}{
			{`"payloads": 1`, []string{"--dedupe-window", "1000d", "--payload-retention", "1ms"}},
			{`"payloads": 0`, []string{"--dedupe-window", "1000d", "--payload-retention", "1ms"}},
			{`"count": 6`, []string{"--dedupe-window", "1ms", "--dead-retention", "1ms", "--pending-retention", "2ms"}},
			{`"count": 0`, []string{"--dedupe-window", "1ms", "--dead-retention", "1ms", "--pending-retention", "2ms"}},
		} {
			args := append([]string{"sweep", "-o", "json"}, c.args...)
			code, dry, stderr := p.call(t, "", append(args, "--dry-run")...)
			if code != 0 {
				t.Fatal(stderr)
			}
			_, done, _ := p.call(t, "", append(args, "--yes")...)
			if dry = strings.Replace(dry, "true", "false", 1); dry != done || !strings.Contains(done, c.says) {
				t.Errorf("%v: the dry run says %s, the sweep %s", c.args, dry, done)
			}
		}
	})
}

func TestMigrationsAsSQL(t *testing.T) {
	t.Parallel()
	places(t, func(t *testing.T, p *place) {
		dialect := "sqlite"
		args := []string{"migrate", "print-sql"}
		if strings.HasPrefix(p.url, "postgres") {
			dialect = "postgres"
			args = append(args, "--schema", `my "schema`)
		}
		code, text, stderr := call(t, "", append(args, "--dialect", dialect, "--prefix", "box")...)
		if code != 0 || !strings.Contains(text, `"box_messages"`) || strings.Contains(text, `"inbox_`) {
			t.Fatalf("%d %s\n%s", code, stderr, text)
		}
		if dialect == "sqlite" {
			p.exec(t, `CREATE TABLE make_the_file (id INTEGER)`)
		}
		p.exec(t, text)
		status := []string{"migrate", "status", "--prefix", "box"}
		if dialect == "postgres" {
			status = append(status, "--schema", `my "schema`)
		}
		if code, stdout, stderr := p.call(t, "", status...); code != 0 {
			t.Errorf("%d %s%s", code, stdout, stderr)
		}
		if code, stdout, _ := p.call(t, "", "migrate", "status"); code != 1 || !strings.Contains(stdout, "version 0") {
			t.Errorf("an inbox that is not there: %d %s", code, stdout)
		}
		if code, stdout, stderr := p.call(t, "", append(status[:1:1], append([]string{"print-sql"}, status[2:]...)...)...); code != 0 || !strings.Contains(stdout, "up to date") {
			t.Errorf("%d %s%s", code, stdout, stderr)
		}
	})
}
