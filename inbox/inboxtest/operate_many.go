package inboxtest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
)

var manyCases = []Case{
	{
		Name: "a key goes on past a dead message",
		Rule: "Skipped, discarded or retried, the dead head lets the next ones go on, in order.",
		Body: keyGoesOn,
	},
	{
		Name: "all dead messages can be retried at once",
		Rule: "Those that match, in bounded transactions, while processors run, each with one effect.",
		Body: retriesAll,
	},
	{
		Name: "a paused name waits",
		Rule: "No processor claims its messages until it is resumed; others go on, and accepting does.",
		Body: pauses,
	},
	{
		Name: "verbs need no name map",
		Rule: "A program that knows no type can see and repair everything; only a codec cannot be asked.",
		Body: verbsWithoutNames,
	},
	{
		Name: "what an operator does is observed once",
		Rule: "With the action, the actor and the count, after the commit, and never for what failed.",
		Body: verbsAreObserved,
	},
}

func keyGoesOn(t *testing.T, e *Env) {
	ways := map[string]struct {
		repair func(head int64, key string) error
		ran    []string
	}{
		"skip": {func(_ int64, key string) error {
			n, err := e.Repo.SkipKey(t.Context(), key)
			if n != 1 {
				t.Errorf("%d skipped", n)
			}
			return err
		}, []string{"2", "3", "4"}},
		"discard": {func(head int64, _ string) error { return e.Repo.Discard(t.Context(), head) }, []string{"2", "3", "4"}},
		"retry":   {func(head int64, _ string) error { return e.Repo.Retry(t.Context(), head) }, []string{"1", "2", "3", "4"}},
	}
	p := e.Processor(t, inbox.ProcessorConfig{})
	for way, want := range ways {
		key := "key of " + way
		ids := []string{way + " 1", way + " 2", way + " 3", way + " 4"}
		e.On(ids[0], func(context.Context, Job) error { return inbox.Permanent(errBoom) })
		if _, err := e.Repo.Accept(t.Context(), e.keyed(key, ids...)); err != nil {
			t.Fatal(err)
		}
		e.Drain(t, p)
		e.Expect(t, ids[0], Dead, 1)
		for _, id := range ids[1:] {
			if row := e.Expect(t, id, Pending, 0); e.Calls(id) > 0 {
				t.Errorf("%s has run behind a dead one: %+v", id, row)
			}
		}
		parked, err := e.Repo.ParkedKeys(t.Context(), 10)
		head := e.Row(t, ids[0]).ID
		if err != nil || len(parked) != 1 || parked[0].Key != key || parked[0].ID != head || parked[0].Waiting != 3 || parked[0].Dead != 1 {
			t.Errorf("parked keys: %+v, %v", parked, err)
		}
		stats, err := e.Repo.Stats(t.Context())
		if err != nil || stats.ParkedKeys != 1 {
			t.Errorf("the statistics say %+v, %v", stats, err)
		}
		if detail, err := e.Repo.Get(t.Context(), e.Row(t, ids[2]).ID); err != nil || detail.BlockedBy != head {
			t.Errorf("%s is blocked by %d, %v, want %d", ids[2], detail.BlockedBy, err, head)
		}

		ran := e.order(ids...)
		if err := want.repair(head, key); err != nil {
			t.Fatalf("%s: %v", way, err)
		}
		if row := e.Row(t, ids[1]); row.State != 0 && way != "retry" { // before an audit finds it
			t.Errorf("after %s the next one is still parked", way)
		}
		e.Drain(t, p)
		var expected []string
		for _, n := range want.ran {
			expected = append(expected, way+" "+n)
		}
		if got := slices.Compact(ran()); !slices.Equal(got, expected) {
			t.Errorf("after %s: %v ran, want %v", way, got, expected)
		}
	}
	// A skipped message takes its place again when it is retried.
	if _, err := e.Repo.SkipKey(t.Context(), "key of skip"); !errors.Is(err, inbox.ErrNotFound) {
		t.Errorf("skipped again: %v", err)
	}
	row := e.Expect(t, "skip 1", Dead, 1)
	if err := e.Repo.Retry(t.Context(), row.ID); err != nil {
		t.Fatal(err)
	}
	if n := e.Count(t, `SELECT count(*) FROM inbox_queue WHERE ordering_key = 'key of skip'`); n != 1 {
		t.Error("a retried message has not got its ordering key back")
	}
	e.Drain(t, p)
	e.Expect(t, "skip 1", Processed, 0)
}

func retriesAll(t *testing.T, e *Env) {
	jobs := numbered("job", 300)
	entries := e.Entries(jobs...)
	for i := range entries {
		if i%3 == 0 {
			entries[i].Source = "other"
		}
		if i%2 == 0 {
			entries[i].OrderingKey = "key" + jobs[i][len(jobs[i])-1:]
		}
	}
	fail := true
	var mu sync.Mutex
	for _, id := range jobs {
		e.On(id, func(ctx context.Context, job Job) error {
			mu.Lock()
			defer mu.Unlock()
			if fail {
				return inbox.Permanent(errors.New("no such account"))
			}
			return e.Effect(ctx, job.ID)
		})
	}
	if _, err := e.Repo.Accept(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
	p := e.Processor(t, inbox.ProcessorConfig{})
	Eventually(t, "all are dead", func() bool {
		e.Drain(t, p)
		for key := range 10 { // every second one stands behind a dead one
			_, _ = e.Repo.SkipKey(t.Context(), "key"+string(rune('0'+key)))
		}
		return e.Count(t, `SELECT count(*) FROM inbox_queue WHERE state = 2`) == len(jobs)
	})
	mu.Lock()
	fail = false
	mu.Unlock()
	count := func(filter inbox.Filter, options inbox.RetryAllOptions) int64 {
		t.Helper()
		n, err := e.Repo.RetryAll(t.Context(), filter, options)
		if err != nil {
			t.Error(err)
		}
		return n
	}
	dry := inbox.RetryAllOptions{DryRun: true}
	for _, c := range []struct {
		filter inbox.Filter
		want   int64
	}{
		{inbox.Filter{}, 300},
		{inbox.Filter{Source: "other"}, 100},
		{inbox.Filter{Name: "job", Status: inbox.Dead}, 300},
		{inbox.Filter{Name: "other"}, 0},
		{inbox.Filter{ErrorContains: "ACCOUNT"}, 300},
		{inbox.Filter{ErrorContains: "%"}, 0},
		{inbox.Filter{MessageID: jobs[7]}, 1},
	} {
		if n := count(c.filter, dry); n != c.want {
			t.Errorf("%+v: %d match, want %d", c.filter, n, c.want)
		}
	}
	if n := count(inbox.Filter{}, inbox.RetryAllOptions{DryRun: true, Limit: 20}); n != 20 {
		t.Errorf("a dry run with a limit counts %d", n)
	}
	if n := e.Count(t, `SELECT count(*) FROM inbox_queue WHERE state = 2`); n != 300 {
		t.Fatalf("a dry run left %d dead", n)
	}
	if _, err := e.Repo.RetryAll(t.Context(), inbox.Filter{Status: inbox.Pending}, dry); err == nil {
		t.Error("pending messages cannot be chosen")
	}
	if n := count(inbox.Filter{Source: "other"}, inbox.RetryAllOptions{Limit: 30, BatchSize: 7}); n != 30 {
		t.Errorf("%d retried, want 30", n)
	}
	r := start(t, e.Processor(t, inbox.ProcessorConfig{PollInterval: 20 * time.Millisecond, Workers: 2}))
	var progress []int64
	n := count(inbox.Filter{}, inbox.RetryAllOptions{BatchSize: 16, Progress: func(done int64) { progress = append(progress, done) }})
	if n != 270 || len(progress) < 270/16 || progress[len(progress)-1] != 270 {
		t.Errorf("%d retried in %d steps", n, len(progress))
	}
	e.processed(t, len(jobs))
	r.stop(t)
	e.expectOnce(t, jobs)
}

func pauses(t *testing.T, e *Env) {
	ctx := inbox.WithActor(t.Context(), "ann")
	repo, p := e.renamed(t) // "job" is a former name of "task"
	e.Accept(t, "old")
	if err := repo.Pause(ctx, "task"); err != nil {
		t.Fatal(err)
	}
	if err := repo.Pause(inbox.WithActor(ctx, "bob"), "task"); err != nil {
		t.Fatal(err)
	}
	paused, err := repo.Paused(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, name := range paused {
		names = append(names, name.Name)
		if name.Actor != "ann" || time.Since(name.PausedAt).Abs() > time.Hour {
			t.Errorf("paused: %+v", name)
		}
	}
	if !slices.Contains(names, "job") || !slices.Contains(names, "task") {
		t.Errorf("paused: %v", names)
	}
	accepted(t, repo, []inbox.Entry{{MessageID: "new", Source: "test", Message: RenamedJob{ID: "new"}}}, inbox.Stored)
	if n, err := p.Drain(ctx); n != 0 || err != nil {
		t.Errorf("%d processed while paused, %v", n, err)
	}
	stats, err := repo.Stats(ctx)
	if err != nil || !slices.Equal(stats.Paused, names) || !stats.Names["job"].Paused {
		t.Errorf("the statistics say %+v, %v", stats, err)
	}
	if err := repo.Resume(ctx, "job"); err != nil { // any of its names
		t.Fatal(err)
	}
	if n, err := p.Drain(ctx); n != 2 || err != nil {
		t.Errorf("%d processed after Resume, %v", n, err)
	}
	if paused, err := repo.Paused(ctx); len(paused) > 0 || err != nil {
		t.Errorf("paused: %+v, %v", paused, err)
	}
	if err := repo.Resume(ctx, "task"); err != nil {
		t.Error(err)
	}
	if err := repo.Pause(ctx, "a\x00b"); err == nil {
		t.Error("a name that cannot be was paused")
	}
	// A running processor notices both.
	r := start(t, e.Processor(t, inbox.ProcessorConfig{PollInterval: 10 * time.Millisecond}))
	if err := repo.Pause(ctx, "unknown"); err != nil {
		t.Fatal(err)
	}
	if err := repo.Pause(ctx, "job"); err != nil {
		t.Fatal(err)
	}
	e.Accept(t, "late")
	if err := repo.Resume(ctx, "job"); err != nil {
		t.Fatal(err)
	}
	e.processed(t, 3)
	r.stop(t)
}

func verbsWithoutNames(t *testing.T, e *Env) {
	repo, err := inbox.NewRepository(e.DB, inbox.NewNameMap(), inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	e.dies(t, e.keyed("key", "skipped")...)
	e.dies(t, e.Entries("retried", "edited", "forced", "discarded", "all")...)
	id := func(message string) int64 { return e.Row(t, message).ID }
	ctx := t.Context()
	var refused *inbox.PayloadError
	if err := repo.EditAndRetry(ctx, id("edited"), []byte("<job/>"), inbox.EditOptions{}); !errors.As(err, &refused) {
		t.Errorf("not JSON: %v", err)
	}
	_, skip := repo.SkipKey(ctx, "key")
	_, sweep := repo.Sweep(ctx)
	for verb, err := range map[string]error{
		"skip key": skip,
		"sweep":    sweep,
		"retry":    repo.Retry(ctx, id("retried")),
		"edit":     repo.EditAndRetry(ctx, id("edited"), []byte(`{"id":"edited"}`), inbox.EditOptions{}),
		"force":    repo.EditAndRetry(ctx, id("forced"), []byte("<job/>"), inbox.EditOptions{Force: true}),
		"discard":  repo.Discard(ctx, id("discarded")),
		"pause":    repo.Pause(ctx, "job"),
		"resume":   repo.Resume(ctx, "job"),
	} {
		if err != nil {
			t.Errorf("%s: %v", verb, err)
		}
	}
	if n, err := repo.RetryAll(ctx, inbox.Filter{}, inbox.RetryAllOptions{}); n != 2 || err != nil {
		t.Errorf("%d retried, %v", n, err)
	}
	stats, err := repo.Stats(ctx)
	if err != nil || stats.Names["job"].Registered || stats.Pending != 5 || !slices.Equal(stats.Unclaimed, []string{"job"}) {
		t.Errorf("the statistics say %+v, %v", stats, err)
	}
	if _, err := repo.Processors(ctx); err != nil {
		t.Error(err)
	}
	if _, err := repo.Minutes(ctx, time.Hour); err != nil {
		t.Error(err)
	}
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
	e.expectEffects(t, "skipped", "retried", "edited", "all")
	e.Expect(t, "forced", Dead, 1) // its codec refuses it
}

func verbsAreObserved(t *testing.T, e *Env) {
	var mu sync.Mutex
	var seen []inbox.Observation
	repo := e.NewRepository(t, inbox.Config{Observer: &watcher{watch: func(_ context.Context, o inbox.Observation) {
		mu.Lock()
		defer mu.Unlock()
		if o.Kind == inbox.SawAction {
			seen = append(seen, o)
		}
	}}})
	e.dies(t, e.keyed("key", "skipped")...)
	e.dies(t, e.Entries("retried", "edited", "discarded", "all 1", "all 2")...)
	id := func(message string) int64 { return e.Row(t, message).ID }
	ctx := inbox.WithActor(t.Context(), "ann")
	_, skip := repo.SkipKey(ctx, "key")
	all, retryAll := repo.RetryAll(ctx, inbox.Filter{ErrorContains: "boom", MessageID: "all 1"}, inbox.RetryAllOptions{})
	_, sweep := repo.Sweep(ctx)
	for _, err := range []error{
		skip, retryAll, sweep,
		repo.Retry(ctx, id("retried")),
		repo.EditAndRetry(ctx, id("edited"), []byte(`{"id":"edited"}`), inbox.EditOptions{}),
		repo.Discard(ctx, id("discarded")),
		repo.Pause(ctx, "job"), repo.Pause(ctx, "job"),
		repo.Resume(ctx, "job"), repo.Resume(ctx, "job"),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	for _, err := range []error{
		repo.Retry(ctx, 1<<40),
		repo.Discard(ctx, id("discarded")),
		repo.EditAndRetry(ctx, id("all 2"), []byte("<job/>"), inbox.EditOptions{}),
	} {
		if err == nil {
			t.Error("no error")
		}
	}
	if _, err := repo.RetryAll(ctx, inbox.Filter{}, inbox.RetryAllOptions{DryRun: true}); err != nil {
		t.Error(err)
	}
	var acts []string
	for _, o := range seen {
		acts = append(acts, o.Action+" "+o.Message.MessageID+o.Message.OrderingKey)
		if o.Actor != "ann" || o.Count != 1 && o.Action != "sweep" {
			t.Errorf("%s: by %q, %d messages", o.Action, o.Actor, o.Count)
		}
	}
	want := []string{"skip-key key", "retry-all ", "sweep ", "retry retried", "edit edited", "discard discarded", "pause ", "resume "}
	if all != 1 || !slices.Equal(acts, want) {
		t.Errorf("observed %q, want %q", acts, want)
	}
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
}

// order scripts handlers that note in which order they ran.
func (e *Env) order(ids ...string) func() []string {
	var mu sync.Mutex
	var ran []string
	for _, id := range ids {
		e.On(id, func(ctx context.Context, job Job) error {
			mu.Lock()
			ran = append(ran, job.ID)
			mu.Unlock()
			return e.Effect(ctx, job.ID)
		})
	}
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(ran)
	}
}
