package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/internal/testdb"
)

// lastLine decodes the demo's last line.
func lastLine(t *testing.T, output string) (s summary) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(output, "\n"), "\n")
	decoder := json.NewDecoder(strings.NewReader(lines[len(lines)-1]))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&s); err != nil {
		t.Fatalf("the last line is not the summary: %v\n%s", err, output)
	}
	return s
}

func TestTheDemoAddsUp(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, dsn string) {
		var output bytes.Buffer
		if err := runDemo(t.Context(), dsn, &output, discard); err != nil {
			t.Fatalf("%v\n%s", err, output.String())
		}
		got := lastLine(t, output.String())
		want := summary{
			Deliveries: got.Deliveries, Stored: 240, Duplicates: got.Deliveries - 240 - got.Mismatches, Mismatches: got.Mismatches,
			Rejected: 17, Processed: 234, Dead: 6, CreditedCents: got.ExpectedCents, ExpectedCents: got.ExpectedCents, OK: true,
		}
		if got != want || got.ExpectedCents == 0 || got.Mismatches == 0 || got.Duplicates == 0 {
			t.Errorf("%+v", got)
		}
		if strings.Contains(output.String(), "FAIL") {
			t.Error(output.String())
		}
		wantNothingLeft(t, dsn)
	})
}

// wantNothingLeft checks that a demo on dsn has cleaned up.
func wantNothingLeft(t *testing.T, dsn string) {
	t.Helper()
	if !isPostgres(dsn) {
		for _, suffix := range []string{"", "-wal", "-shm"} {
			if _, err := os.Stat(dsn + suffix); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is left behind", dsn+suffix)
			}
		}
		return
	}
	db, err := testdb.OpenPGX(dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var schemas []string
	err = db.NewSelect().Table("pg_namespace").Column("nspname").
		Where("nspname NOT IN (?) AND nspname NOT LIKE 'pg_t%'", bun.List([]string{"public", "pg_catalog", "information_schema"})).
		Scan(t.Context(), &schemas)
	if err != nil || len(schemas) > 0 {
		t.Errorf("schemas left behind: %q (%v)", schemas, err)
	}
	var tables int
	if err := db.NewSelect().Table("pg_tables").ColumnExpr("count(*)").Where("schemaname = 'public'").Scan(t.Context(), &tables); err != nil || tables > 0 {
		t.Errorf("%d tables left behind (%v)", tables, err)
	}
}

func TestTheDemoLeavesAnExistingFileAlone(t *testing.T) {
	t.Parallel()
	file := testdb.SQLiteFile(t)
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := runDemo(t.Context(), file, io.Discard, discard); err == nil {
		t.Error("the demo ran on a file that was there")
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "mine" {
		t.Errorf("the file is now %q, %v", text, err)
	}
}

func TestTheDemoPlaysTheStory(t *testing.T) {
	t.Parallel()
	plan, err := newPlan()
	if err != nil {
		t.Fatal(err)
	}
	lines, err := readLines()
	if err != nil {
		t.Fatal(err)
	}
	times := map[string]int{} // by raw text
	repeatsInside, unknownFields, refused := 0, 0, map[int]int{}
	for _, r := range slices.Concat(plan.before, plan.after) {
		if r.status != 202 {
			refused[r.status]++
			continue
		}
		inside := map[string]bool{}
		for _, l := range lines {
			n := strings.Count(r.body, l.raw)
			times[l.raw] += n
			if n > 1 {
				inside[l.raw] = true
			}
		}
		if len(inside) > 0 {
			repeatsInside++
		}
		if strings.Contains(r.body, "devolucoes") || strings.Contains(r.body, "gnExtras") {
			unknownFields++
		}
	}
	counts := map[int]int{}
	ids, chaves := map[string][]string{}, map[string]bool{}
	for _, l := range lines {
		counts[times[l.raw]]++
		ids[l.id] = append(ids[l.id], l.raw)
		if _, known := plan.want.Balances[l.chave]; known {
			chaves[l.chave] = true
		}
	}
	if len(counts) != 4 || counts[1]+counts[2]+counts[3]+counts[4] != len(lines) {
		t.Errorf("number of lines by times delivered: %v", counts)
	}
	if len(ids) < 200 || len(chaves) != 20 || plan.want.Dead < 2 || repeatsInside < 5 || unknownFields < 20 {
		t.Errorf("%d identities, %d accounts, %d for unknown accounts, %d requests with repeats inside, %d with unknown fields",
			len(ids), len(chaves), plan.want.Dead, repeatsInside, unknownFields)
	}
	if statuses := slices.Sorted(maps.Keys(refused)); !slices.Equal(statuses, []int{400, 413, 415, 422}) {
		t.Errorf("refused: %v", refused)
	}
	for id, raws := range ids {
		if len(raws) == 1 {
			continue
		}
		original := 0
		for _, r := range plan.before {
			original += strings.Count(r.body, raws[0])
			if strings.Contains(r.body, raws[1]) {
				t.Errorf("%s: the changed one may come before the original", id)
			}
		}
		if original == 0 {
			t.Errorf("%s: the original may come after the changed one", id)
		}
	}
}

func TestTheDemoNoticesWhenTheBooksDoNotAddUp(t *testing.T) {
	t.Parallel()
	plan, err := newPlan()
	if err != nil {
		t.Fatal(err)
	}
	if err := conclude(io.Discard, plan.want, plan.want); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*books){
		"deliveries": func(b *books) { b.Deliveries++; b.Duplicates++ },
		"stored":     func(b *books) { b.Stored++; b.Duplicates-- },
		"duplicates": func(b *books) { b.Duplicates++; b.Mismatches-- },
		"mismatches": func(b *books) { b.Mismatches++; b.Stored-- },
		"sum":        func(b *books) { b.Duplicates-- },
		"rejected":   func(b *books) { b.Rejected-- },
		"surprises":  func(b *books) { b.Surprises = 1 },
		"pending":    func(b *books) { b.Pending = 1 },
		"processed":  func(b *books) { b.Processed-- },
		"dead":       func(b *books) { b.Dead++ },
		"credits":    func(b *books) { b.Credits++ },
		"credited":   func(b *books) { b.Credited-- },
		"balances":   func(b *books) { b.Balances["ana@example.com"]-- },
		"no account": func(b *books) { delete(b.Balances, "ana@example.com") },
	} {
		got := plan.want
		got.Balances = maps.Clone(got.Balances)
		spoil(&got)
		var output bytes.Buffer
		if err := conclude(&output, plan.want, got); !errors.Is(err, errCheckFailed) || lastLine(t, output.String()).OK {
			t.Errorf("%s: not noticed (%v)\n%s", name, err, output.String())
		}
	}
}
