package inboxtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
)

var claimCases = []Case{
	{
		Name: "a claim by name knows former names and refuses unknown ones",
		Rule: "GetMany with names claims rows stored under their former names too; a name that is not registered is an error.",
		Body: claimFormerNames,
	},
	{
		Name: "a claim takes no more than its limit, oldest due time first",
		Rule: "GetMany returns at most limit messages, sorted by due time, then accept order.",
		Body: claimLimit,
	},
	{
		Name: "a claim takes registered names only, and of those the ones asked for",
		Rule: "A name that nobody here knows is left alone.",
		Body: claimNames,
	},
	{
		Name: "what one transaction has claimed another passes by",
		Rule: "Claims lock their rows and skip locked ones; a rollback frees them.",
		Body: claimSkipsLocked,
	},
	{
		Name: "a message is not claimed before it is due",
		Rule: "Due times are judged by one clock, the database's or the one of the test.",
		Body: claimWhenDue,
	},
	{
		Name: "a due time in the past means now",
		Rule: "A message that is long due does not overtake those that wait since before it came.",
		Body: pastDue,
	},
	{
		Name: "times are instants in every time zone",
		Rule: "A due time is the same instant whatever its zone; times come back in UTC.",
		Body: timeZones,
	},
	{
		Name: "the low-level pair processes a message in the caller's transaction",
		Rule: "Process records the fate and never commits.",
		Body: lowLevelPair,
	},
}

// claimFrom returns what a claim hands out, and gives it back.
func (e *Env) claimFrom(t *testing.T, repo *inbox.Repository, limit int, names ...string) []*inbox.Claimed {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // a claim never waits
	defer cancel()
	tx, err := e.DB.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	claimed, err := repo.GetMany(ctx, tx, limit, names...)
	if err != nil {
		t.Fatal(err)
	}
	return claimed
}

// claimAll is claimFrom for everything that is due.
func (e *Env) claimAll(t *testing.T) []*inbox.Claimed {
	t.Helper()
	return e.claimFrom(t, e.Repo, 1<<20)
}

// claim is claimFrom for the message ids.
func (e *Env) claim(t *testing.T, repo *inbox.Repository, limit int, names ...string) []string {
	t.Helper()
	claimed := e.claimFrom(t, repo, limit, names...)
	ids := make([]string, len(claimed))
	for i, c := range claimed {
		ids[i] = c.MessageID
	}
	return ids
}

// pastDues stores 40 messages of two names, accepted in another order than due.
func (e *Env) pastDues(t *testing.T) (sorted []string) {
	t.Helper()
	inbox.Register[OtherJob](e.Names, "other_job")
	base := time.Date(2024, 2, 29, 12, 0, 0, 0, time.UTC)
	var entries []inbox.Entry
	due := map[string]int{}
	for i := range 40 {
		id := fmt.Sprintf("m%02d", i)
		// Four accepted one after another share a due time.
		due[id] = (i / 4 * 7) % 10
		entry := inbox.Entry{MessageID: id, Message: Job{ID: id}, Due: base.Add(time.Duration(due[id]) * time.Microsecond)}
		if i%2 == 0 {
			entry.Message = OtherJob{ID: id}
		}
		entries = append(entries, entry)
		sorted = append(sorted, id)
	}
	before := e.NewRepository(t, inbox.Config{Clock: func() time.Time { return base }})
	if _, err := before.Accept(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(sorted, func(a, b string) int {
		return cmp.Or(cmp.Compare(due[a], due[b]), cmp.Compare(a, b))
	})
	return sorted
}

func claimLimit(t *testing.T, e *Env) {
	sorted := e.pastDues(t)
	if got := e.claim(t, e.Repo, 100); !slices.Equal(got, sorted) {
		t.Errorf("claimed %v, want %v", got, sorted)
	}
	for _, limit := range []int{1, 7, 39, 40} {
		got := e.claim(t, e.Repo, limit)
		if len(got) != limit {
			t.Errorf("%d claimed, limit %d", len(got), limit)
		}
		if !slices.IsSortedFunc(got, func(a, b string) int { return slices.Index(sorted, a) - slices.Index(sorted, b) }) {
			t.Errorf("not sorted by due time: %v", got)
		}
		got = e.claim(t, e.Repo, limit, "job")
		want := slices.DeleteFunc(slices.Clone(sorted), func(id string) bool { return (id[2]-'0')%2 == 0 })
		if want = want[:min(limit, len(want))]; !slices.Equal(got, want) {
			t.Errorf("claimed %v of one name, want %v", got, want)
		}
	}
	e.begun(t, func(tx bun.Tx) {
		for _, limit := range []int{0, -1} {
			if got, err := e.Repo.GetMany(t.Context(), tx, limit); err == nil {
				t.Errorf("limit %d: %d claimed and no error", limit, len(got))
			}
		}
		if e.Postgres() {
			if _, err := e.Repo.GetMany(t.Context(), tx, 3); err != nil {
				t.Fatal(err)
			}
			// The row lock is in the tuple header until the transaction ends.
			if n := len(e.claim(t, e.Repo, 100)); n != 37 {
				t.Errorf("a claim of 3 of 40 leaves %d to others", n)
			}
		}
	})
}

func claimNames(t *testing.T, e *Env) {
	e.pastDues(t)
	old, err := inbox.NewRepository(e.DB, inbox.NewNameMap(), inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if got := e.claim(t, old, 100); len(got) != 0 {
		t.Errorf("an empty name map claims %v", got)
	}
	names := inbox.NewNameMap()
	inbox.Register[OtherJob](names, "other_job")
	other, err := inbox.NewRepository(e.DB, names, inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, got := range [][]string{e.claim(t, other, 100), e.claim(t, e.Repo, 100, "other_job")} {
		if len(got) != 20 || slices.ContainsFunc(got, func(id string) bool { return (id[2]-'0')%2 == 1 }) {
			t.Errorf("claimed %v, want the 20 even ones", got)
		}
	}
	if got := e.claim(t, e.Repo, 100, "job", "other_job"); len(got) != 40 {
		t.Errorf("%d claimed of both names", len(got))
	}
}

func claimSkipsLocked(t *testing.T, e *Env) {
	if !e.Postgres() {
		t.Skip("SQLite: the write lock of the file stands in for row locks, so there is never a second claim")
	}
	ids := []string{"a", "b", "c", "d", "e"}
	e.Accept(t, ids...)
	e.begun(t, func(tx bun.Tx) {
		claimed, err := e.Repo.GetMany(t.Context(), tx, 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(claimed) != 2 {
			t.Fatalf("%d claimed", len(claimed))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err = e.DB.RunInTx(ctx, nil, func(ctx context.Context, second bun.Tx) error {
			more, err := e.Repo.GetMany(ctx, second, 10)
			if len(more) != 3 {
				t.Errorf("%d claimed beside 2 of 5", len(more))
			}
			for _, c := range more {
				if c.MessageID == claimed[0].MessageID || c.MessageID == claimed[1].MessageID {
					t.Errorf("%s is claimed twice", c.MessageID)
				}
			}
			return err
		})
		if err != nil {
			t.Errorf("the second claim: %v", err)
		}
	})
	if got := e.claim(t, e.Repo, 10); !slices.Equal(got, ids) {
		t.Errorf("after both ended %v is claimable", got)
	}
}

func claimWhenDue(t *testing.T, e *Env) {
	var offset atomic.Int64
	start := time.Date(2030, 6, 1, 0, 0, 0, 0, time.UTC)
	repo := e.NewRepository(t, inbox.Config{Clock: func() time.Time { return start.Add(time.Duration(offset.Load())) }})
	entries := e.Entries("now", "later", "much later")
	entries[1].Due = start.Add(time.Hour)
	entries[2].Due = time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC)
	accepted(t, repo, entries, inbox.Stored, inbox.Stored, inbox.Stored)

	for _, step := range []struct {
		after time.Duration
		want  []string
	}{
		{0, []string{"now"}},
		{time.Hour - time.Microsecond, []string{"now"}},
		{time.Hour, []string{"now", "later"}},
		{-time.Microsecond, []string{}}, // the clock stepped back behind the accept
	} {
		offset.Store(int64(step.after))
		if got := e.claim(t, repo, 10); !slices.Equal(got, step.want) {
			t.Errorf("after %v %v is due, want %v", step.after, got, step.want)
		}
	}
	// By the database's own clock none of them is due for years.
	if got := e.claim(t, e.Repo, 10); len(got) != 0 {
		t.Errorf("due by the database's clock: %v", got)
	}
	e.Accept(t, "at once")
	if got := e.claim(t, e.Repo, 10); !slices.Equal(got, []string{"at once"}) {
		t.Errorf("due by the database's clock: %v", got)
	}
}

func pastDue(t *testing.T, e *Env) {
	e.Accept(t, "first")
	entries := e.Entries("second")
	entries[0].Due = time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)
	accepted(t, e.Repo, entries, inbox.Stored)
	if got := e.claim(t, e.Repo, 10); !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("claimed %v", got)
	}
}

func timeZones(t *testing.T, e *Env) {
	instant := time.Date(2044, 3, 13, 2, 30, 0, 123_456_789, time.UTC)
	stored := "2044-03-13T02:30:00.123456Z"
	zones := []*time.Location{time.UTC, time.Local, time.FixedZone("", 14*3600), time.FixedZone("", -12*3600), time.FixedZone("odd", 20*60+9)}
	entries := make([]inbox.Entry, len(zones))
	for i, zone := range zones {
		id := fmt.Sprint("zone-", i)
		entries[i] = inbox.Entry{MessageID: id, Message: Job{ID: id}, Due: instant.In(zone)}
	}
	before := time.Now().Add(-time.Minute)
	if _, err := e.Repo.Accept(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
	after := time.Now().Add(time.Minute)

	due, received := `due`, `m.received_at`
	if e.Postgres() {
		due = `to_char(due AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`
		received = strings.ReplaceAll(due, "due", "m.received_at")
	}
	var rows []struct{ Due, Received string }
	if err := e.DB.NewRaw(`SELECT `+due+` AS due, `+received+` AS received FROM inbox_queue JOIN inbox_messages m USING (id) ORDER BY m.id`).Scan(t.Context(), &rows); err != nil {
		t.Fatal(err)
	}
	onceDue := e.NewRepository(t, inbox.Config{Clock: func() time.Time { return instant }})
	claimed := e.claimFrom(t, onceDue, 100)
	if len(rows) != len(zones) || len(claimed) != len(zones) {
		t.Fatalf("%d rows and %d claimed, want %d", len(rows), len(claimed), len(zones))
	}
	for i, c := range claimed {
		if rows[i].Due != stored {
			t.Errorf("zone %v: due at %s, want %s", zones[i], rows[i].Due, stored)
		}
		if c.ReceivedAt.Before(before) || c.ReceivedAt.After(after) || c.ReceivedAt.Location() != time.UTC {
			t.Errorf("received at %v, want about now in UTC", c.ReceivedAt)
		}
		if want := c.ReceivedAt.Format("2006-01-02T15:04:05.000000Z"); rows[i].Received != want {
			t.Errorf("received at %s, claimed with %s", rows[i].Received, want)
		}
	}
}

func lowLevelPair(t *testing.T, e *Env) {
	entries := e.Entries("a", "b")
	entries[0].OrderingKey, entries[0].Metadata = "key", map[string]string{"k": "v"}
	accepted(t, e.Repo, entries, inbox.Stored, inbox.Stored)
	e.On("b", func(ctx context.Context, _ Job) error {
		return errors.Join(e.Effect(ctx, "b"), errors.New("not b"))
	})
	p := e.Processor(t, inbox.ProcessorConfig{Backoff: inbox.Backoff{Base: time.Hour, Max: time.Hour}})
	run := func(end func(bun.Tx) error) {
		t.Helper()
		tx, err := e.DB.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		claimed, err := e.Repo.GetMany(t.Context(), tx, 10)
		if err != nil || len(claimed) != 2 {
			t.Fatalf("claimed %d: %v", len(claimed), err)
		}
		if a := claimed[0]; a.MessageID != "a" || a.Source != "test" || a.Name != "job" || a.OrderingKey != "key" || a.Attempt != 1 || a.Metadata["k"] != "v" || a.ID == 0 {
			t.Errorf("claimed %+v", a.Info)
		}
		for _, c := range claimed {
			if err := p.Process(t.Context(), tx, c); err != nil {
				t.Fatal(err)
			}
		}
		if err := end(tx); err != nil {
			t.Fatal(err)
		}
	}
	run(bun.Tx.Rollback)
	e.Expect(t, "a", Pending, 0)
	e.Expect(t, "b", Pending, 0)
	if n := len(e.Effects(t)); n != 0 {
		t.Errorf("%d effects after a rollback", n)
	}
	run(bun.Tx.Commit)
	e.Expect(t, "a", Processed, 0)
	e.Expect(t, "b", Pending, 1)
	if effects := e.Effects(t); effects["a"] != 1 || len(effects) != 1 {
		t.Errorf("effects %v", effects)
	}
}

func claimFormerNames(t *testing.T, e *Env) {
	e.Accept(t, "old")
	names := inbox.NewNameMap()
	inbox.RegisterWith[Job](names, inbox.Registration{Name: "task", FormerNames: []string{"job"}})
	repo, err := inbox.NewRepository(e.DB, names, inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := repo.Accept(t.Context(), []inbox.Entry{{MessageID: "new", Message: Job{ID: "new"}}}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"task", "job"} {
		if got := e.claim(t, repo, 10, name, name); !slices.Equal(got, []string{"old", "new"}) {
			t.Errorf("claimed %v as %q", got, name)
		}
	}
	tx, err := e.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := repo.GetMany(t.Context(), tx, 10, "tsak"); !errors.Is(err, inbox.ErrUnregistered) {
		t.Errorf("a misspelt name: %v", err)
	}
}
