package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
)

var listCases = []Case{
	{
		Name: "messages can be listed",
		Rule: "Each filter finds its messages and no others, the newest first, and pages miss and repeat none.",
		Body: lists,
	},
	{
		Name: "a list holds no payload",
		Rule: "What lists and statistics read does not grow with payloads and metadata.",
		Body: listsWithoutPayload,
	},
	{
		Name: "a message tells its story",
		Rule: "Its attempts with time, duration, error and processor, oldest first, a bounded number; its metadata and fingerprint.",
		Body: tellsHistory,
	},
	{
		Name: "the statistics count what is unfinished",
		Rule: "Per status, name and source; failing, parked and overdue ones; who claims them.",
		Body: countsUnfinished,
	},
	{
		Name: "dead messages are grouped by error",
		Rule: "By name and the beginning of the error, the largest group first, with the newest message.",
		Body: groupsErrors,
	},
	{
		Name: "running processors are listed",
		Rule: "While Run runs, with the names that it serves, and what it did per minute.",
		Body: listsProcessors,
	},
}

// story stores messages in every condition and returns their ids, oldest first.
func (e *Env) story(t *testing.T) []string {
	t.Helper()
	e.Accept(t, "processed 1", "processed 2")
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
	if _, err := e.once(t.Context(), "inline"); err != nil {
		t.Fatal(err)
	}
	e.dies(t, e.Entries("dead", "discarded", "100%_dead")...)
	if err := e.Repo.Discard(t.Context(), e.Row(t, "discarded").ID); err != nil {
		t.Fatal(err)
	}
	e.dies(t, e.keyed("key", "head")...)
	e.On("failing", func(context.Context, Job) error { return errors.New("no Route") })
	entries := e.Entries("failing", "pending")
	entries[1].Source, entries[1].Due = "elsewhere", time.Now().Add(time.Hour)
	if _, err := e.Repo.Accept(t.Context(), append(entries, e.keyed("key", "follower")...)); err != nil {
		t.Fatal(err)
	}
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{Backoff: later}))
	return []string{"processed 1", "processed 2", "inline", "dead", "discarded", "100%_dead", "head", "failing", "pending", "follower"}
}

func lists(t *testing.T, e *Env) {
	all := e.story(t)
	middle := time.Now()
	for _, c := range []struct {
		name   string
		filter inbox.Filter
		want   []string // oldest first
	}{
		{"everything", inbox.Filter{}, all},
		{"processed", inbox.Filter{Status: inbox.Processed}, []string{"processed 1", "processed 2", "inline"}},
		{"dead", inbox.Filter{Status: inbox.Dead}, []string{"dead", "100%_dead", "head"}},
		{"pending", inbox.Filter{Status: inbox.Pending}, []string{"failing", "pending", "follower"}},
		{"discarded", inbox.Filter{Discarded: true}, []string{"discarded"}},
		{"discarded and dead", inbox.Filter{Discarded: true, Status: inbox.Dead}, []string{"discarded"}},
		{"discarded and pending", inbox.Filter{Discarded: true, Status: inbox.Pending}, nil},
		{"failing", inbox.Filter{Failing: true}, []string{"failing"}},
		{"parked", inbox.Filter{Parked: true}, []string{"follower"}},
		{"parked and processed", inbox.Filter{Parked: true, Status: inbox.Processed}, nil},
		{"a name", inbox.Filter{Name: "job", Status: inbox.Dead}, []string{"dead", "100%_dead", "head"}},
		{"no such name", inbox.Filter{Name: "jo", Status: inbox.Dead}, nil},
		{"a source", inbox.Filter{Source: "elsewhere"}, []string{"pending"}},
		{"a source, unfinished", inbox.Filter{Source: "elsewhere", Status: inbox.Pending}, []string{"pending"}},
		{"a key", inbox.Filter{OrderingKey: "key"}, []string{"head", "follower"}},
		{"a key, pending", inbox.Filter{OrderingKey: "key", Status: inbox.Pending}, []string{"follower"}},
		{"a key, dead", inbox.Filter{OrderingKey: "key", Status: inbox.Dead}, []string{"head"}},
		{"an id", inbox.Filter{MessageID: "processed 2"}, []string{"processed 2"}},
		{"an id of another source", inbox.Filter{MessageID: "pending"}, []string{"pending"}},
		{"an id and a source", inbox.Filter{MessageID: "pending", Source: "elsewhere"}, []string{"pending"}},
		{"an id and the wrong source", inbox.Filter{MessageID: "pending", Source: "test"}, nil},
		{"an id of the wrong status", inbox.Filter{MessageID: "dead", Status: inbox.Pending}, nil},
		{"no pattern in an id", inbox.Filter{MessageID: "%"}, nil},
		{"an error", inbox.Filter{ErrorContains: "BOOM"}, []string{"dead", "100%_dead", "head"}},
		{"an error of failing ones", inbox.Filter{ErrorContains: "route"}, []string{"failing"}},
		{"an error of dead ones only", inbox.Filter{ErrorContains: "route", Status: inbox.Dead}, nil},
		{"no pattern in an error", inbox.Filter{ErrorContains: "b_om"}, nil},
		{"a quote in an error", inbox.Filter{ErrorContains: `'; -- \ ?`}, nil},
		{"received before", inbox.Filter{ReceivedBefore: middle.Add(-time.Hour)}, nil},
		{"received since", inbox.Filter{ReceivedAfter: middle.Add(-time.Hour), Status: inbox.Dead}, []string{"dead", "100%_dead", "head"}},
		{"received within", inbox.Filter{ReceivedAfter: middle.Add(-time.Hour), ReceivedBefore: middle.Add(time.Hour)}, all},
	} {
		want := slices.Clone(c.want)
		slices.Reverse(want)
		for _, limit := range []int{0, 1, 2, 1000} {
			var got []string
			for page := (inbox.Page{Limit: limit}); ; {
				summaries, next, err := e.Repo.List(t.Context(), c.filter, page)
				if err != nil {
					t.Fatalf("%s: %v", c.name, err)
				}
				if limit > 0 && len(summaries) > limit {
					t.Errorf("%s: a page of %d, want %d", c.name, len(summaries), limit)
				}
				for _, s := range summaries {
					got = append(got, s.MessageID)
				}
				if page.Before = next; next == 0 {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s in pages of %d: %q, want %q", c.name, limit, got, want)
			}
		}
	}
	e.checkSummaries(t)
}

func (e *Env) checkSummaries(t *testing.T) {
	t.Helper()
	summaries, _, err := e.Repo.List(t.Context(), inbox.Filter{}, inbox.Page{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range summaries {
		what := []string{s.Kind.String()}
		for word, is := range map[string]bool{
			"discarded": s.Discarded && !s.DiscardedAt.IsZero(), "parked": s.Parked, "blocking": s.Blocking,
			"due": !s.Due.IsZero(), "died": !s.DiedAt.IsZero(), "done": !s.ProcessedAt.IsZero(),
			s.LastError: s.LastError != "", "charged": s.Attempts > 0, "received": s.ReceivedAt.IsZero(),
		} {
			if is {
				what = append(what, word)
			}
		}
		slices.Sort(what[1:])
		want := map[string]string{
			"dead": "dead boom charged died", "100%_dead": "dead boom charged died", "head": "dead blocking boom charged died",
			"discarded": "dead boom charged discarded", "failing": "pending charged due no Route",
			"pending": "pending due", "follower": "pending due parked",
		}[s.MessageID]
		if want == "" {
			want = "processed done"
		}
		if got := strings.Join(what, " "); got != want {
			t.Errorf("%s is %s, want %s", s.MessageID, got, want)
		}
	}
}

func listsWithoutPayload(t *testing.T, e *Env) {
	repo, sent := e.watched(t, inbox.Config{})
	e.story(t)
	sent.sent("")
	ctx := t.Context()
	for _, filter := range []inbox.Filter{{}, {Status: inbox.Dead}, {Status: inbox.Pending}, {MessageID: "dead"}, {ErrorContains: "boom"}} {
		if _, _, err := repo.List(ctx, filter, inbox.Page{}); err != nil {
			t.Fatal(err)
		}
	}
	_, err1 := repo.Stats(ctx)
	_, err2 := repo.DeadErrors(ctx, 10)
	_, err3 := repo.ParkedKeys(ctx, 10)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	queries := sent.sent("")
	if len(queries) < 10 {
		t.Errorf("%d statements seen", len(queries))
	}
	for _, query := range queries {
		text := strings.ReplaceAll(query, "payload_removed_at", "")
		if strings.Contains(text, "payload") || strings.Contains(text, "metadata") || strings.Contains(text, "m.*") {
			t.Errorf("a payload travels: %s", query)
		}
	}
}

func tellsHistory(t *testing.T, e *Env) {
	e.On("a", func(context.Context, Job) error { return fmt.Errorf("attempt %d failed", e.Calls("a")) })
	entries := e.Entries("a")
	entries[0].Metadata, entries[0].Fingerprint = map[string]string{"trace": "1"}, []byte{1, 2}
	accepted(t, e.Repo, entries, inbox.Stored)
	e.finish(t, e.Processor(t, inbox.ProcessorConfig{MaxAttempts: 3, BatchSize: 1}))
	detail, err := e.Repo.Get(t.Context(), e.Expect(t, "a", Dead, 3).ID)
	if err != nil {
		t.Fatal(err)
	}
	if detail.Metadata["trace"] != "1" || detail.RawMetadata != `{"trace":"1"}` || string(detail.Fingerprint) != "\x01\x02" || detail.BlockedBy != 0 {
		t.Errorf("it is %+v", detail)
	}
	if len(detail.History) != 3 || detail.History[2].Error != detail.LastError {
		t.Fatalf("%d attempts are remembered: %+v, and %q", len(detail.History), detail.History, detail.LastError)
	}
	for i, a := range detail.History {
		if a.Number != i+1 || !strings.HasPrefix(a.Error, "attempt ") || a.Processor == "" || a.Duration < 0 ||
			a.StartedAt.IsZero() || i > 0 && a.StartedAt.Before(detail.History[i-1].StartedAt) {
			t.Errorf("attempt %d: %+v", i+1, a)
		}
	}
	if _, err := e.Repo.Get(t.Context(), 1<<40); !errors.Is(err, inbox.ErrNotFound) {
		t.Errorf("no such message: %v", err)
	}
	if _, err := e.Repo.HandleOnce(t.Context(), inbox.Receipt{MessageID: "inline", Name: "job", Metadata: []int{1}}, func(context.Context, bun.IDB) error { return nil }); err != nil {
		t.Fatal(err)
	}
	detail, err = e.Repo.Get(t.Context(), e.Row(t, "inline").ID)
	if err != nil || detail.Payload != nil || detail.RawMetadata != "[1]" || detail.Metadata != nil {
		t.Errorf("a receipt is %+v, %v", detail, err)
	}
}

func countsUnfinished(t *testing.T, e *Env) {
	e.story(t)
	e.Accept(t, "due")
	stats, err := e.Repo.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if stats.OldestDue <= 0 || stats.OldestDue > time.Minute || stats.Names["job"].OldestDue != stats.OldestDue {
		t.Errorf("the oldest due one is %v old, of the name %v", stats.OldestDue, stats.Names["job"].OldestDue)
	}
	n := stats.Names["job"]
	n.OldestDue = 0
	if want := (inbox.NameStats{Pending: 4, Dead: 3, Failing: 1, Parked: 1, Registered: true}); n != want {
		t.Errorf("the name has %+v, want %+v", n, want)
	}
	sources := map[string]inbox.SourceStats{"test": {Pending: 3, Dead: 3}, "elsewhere": {Pending: 1}}
	if !maps.Equal(stats.Sources, sources) || stats.SourcesPartial {
		t.Errorf("the sources have %+v", stats.Sources)
	}
	if stats.Pending != 4 || stats.Dead != 3 || stats.Processed != 4 || stats.Estimated ||
		stats.Failing != 1 || stats.Parked != 1 || stats.ParkedKeys != 1 || !slices.Equal(stats.Unclaimed, []string{"job"}) {
		t.Errorf("the statistics say %+v", stats)
	}
}

func groupsErrors(t *testing.T, e *Env) {
	long := strings.Repeat("ä", 300)
	groups := map[string][]string{"rare": {"r"}, "common": {"c1", "c2", "c3"}, long: {"l1", "l2"}}
	for _, text := range slices.Sorted(maps.Keys(groups)) {
		for i, id := range groups[text] {
			e.On(id, func(context.Context, Job) error {
				if text == long {
					return inbox.Permanent(fmt.Errorf("%s%d", text, i))
				}
				return inbox.Permanent(errors.New(text))
			})
			e.Accept(t, id)
		}
	}
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
	all, err := e.Repo.DeadErrors(t.Context(), 10)
	if err != nil || len(all) != 3 {
		t.Fatalf("%+v, %v", all, err)
	}
	for i, want := range []struct {
		text    string
		count   int64
		example string
	}{{"common", 3, "c3"}, {strings.Repeat("ä", 200), 2, "l2"}, {"rare", 1, "r"}} {
		got := all[i]
		if got.Error != want.text || got.Count != want.count || got.Name != "job" || got.ExampleID != e.Row(t, want.example).ID ||
			got.First.IsZero() || got.Last.Before(got.First) {
			t.Errorf("group %d is %+v, want %+v", i, got, want)
		}
	}
	if some, err := e.Repo.DeadErrors(t.Context(), 1); err != nil || len(some) != 1 {
		t.Errorf("%+v, %v", some, err)
	}
}

func listsProcessors(t *testing.T, e *Env) {
	e.dies(t, e.Entries("dead")...)
	r := start(t, e.Processor(t, inbox.ProcessorConfig{Workers: 1}))
	var all []inbox.ProcessorInfo
	Eventually(t, "the processor is listed", func() bool {
		var err error
		if all, err = e.Repo.Processors(t.Context()); err != nil {
			t.Fatal(err)
		}
		return len(all) == 1
	})
	if p := all[0]; !p.Alive || p.Workers != 1 || !slices.Contains(p.Names, "job") || p.PID == 0 || p.Host == "" ||
		p.StartedAt.IsZero() || p.LapsesAt.Before(p.SeenAt) || !p.CautiousUntil.IsZero() {
		t.Errorf("it is %+v", p)
	}
	e.Accept(t, "a")
	e.processed(t, 1)
	if stats, err := e.Repo.Stats(t.Context()); err != nil || !stats.Names["job"].Claimed || len(stats.Unclaimed) != 0 {
		t.Errorf("the statistics say %+v, %v", stats, err)
	}
	r.stop(t)
	if all, err := e.Repo.Processors(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("after its end: %+v, %v", all, err)
	}
	minutes, err := e.Repo.Minutes(t.Context(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	var processed int64
	for _, m := range minutes {
		if m.Name != "job" || m.Minute.Second() != 0 {
			t.Errorf("a minute: %+v", m)
		}
		processed += m.Processed
	}
	if processed < 1 {
		t.Errorf("the minutes say %+v", minutes)
	}
}
