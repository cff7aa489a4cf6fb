package inboxtest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
)

var operateCases = []Case{
	{
		Name: "a dead message can be retried",
		Rule: "It begins anew, keeps its history, and has its effect once; so does one among many.",
		Body: retriesDead,
	},
	{
		Name: "a waiting message can be hurried",
		Rule: "It is due now, and its attempts count on.",
		Body: retriesWaiting,
	},
	{
		Name: "what is processed stays processed",
		Rule: "No verb touches a processed message, and each says why.",
		Body: leavesProcessed,
	},
	{
		Name: "a discarded message is never run",
		Rule: "Pending or dead, it is given up for good: a repeat is a duplicate, and no verb brings it back.",
		Body: discards,
	},
	{
		Name: "an edited message runs with its new payload",
		Rule: "The codec has to accept it, and what the sender delivers again is still a duplicate.",
		Body: edits,
	},
	{
		Name: "a verb does not reach into a running handler",
		Rule: "It waits a moment, or gives up; what the handler has finished stays finished.",
		Body: verbMeetsHandler,
	},
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

// dies stores jobs that fail once and for all, and lets them die.
func (e *Env) dies(t *testing.T, entries ...inbox.Entry) {
	t.Helper()
	if _, err := e.Repo.Accept(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		e.On(entry.MessageID, func(context.Context, Job) error { return inbox.Permanent(errBoom) })
	}
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
	for _, entry := range entries {
		e.On(entry.MessageID, nil)
	}
}

// keyed makes one entry per id, all of one ordering key.
func (e *Env) keyed(key string, ids ...string) []inbox.Entry {
	entries := e.Entries(ids...)
	for i := range entries {
		entries[i].OrderingKey = key
	}
	return entries
}

func retriesDead(t *testing.T, e *Env) {
	e.dies(t, e.Entries("a", "b")...)
	row := e.Expect(t, "a", Dead, 1)
	before, err := e.Repo.Get(t.Context(), row.ID)
	if err != nil {
		t.Fatal(err)
	}
	if before.Kind != inbox.Dead || before.DiedAt.IsZero() || before.LastError != "boom" || string(before.Payload) != `{"id":"a"}` {
		t.Errorf("it is %+v", before)
	}
	if err := e.Repo.Retry(t.Context(), row.ID); err != nil {
		t.Fatal(err)
	}
	e.Expect(t, "a", Pending, 0)
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
	e.Expect(t, "a", Processed, 0)
	e.Expect(t, "b", Dead, 1)
	e.expectEffects(t, "a")
	after, err := e.Repo.Get(t.Context(), row.ID)
	if err != nil {
		t.Fatal(err)
	}
	if len(after.History) != len(before.History) || after.ProcessedAt.IsZero() {
		t.Errorf("it is %+v", after)
	}
	if err := e.Repo.Retry(t.Context(), 1<<40); !errors.Is(err, inbox.ErrNotFound) {
		t.Errorf("nothing to retry: %v", err)
	}
}

func retriesWaiting(t *testing.T, e *Env) {
	e.On("a", func(ctx context.Context, job Job) error {
		if e.Calls("a") <= 2 { // a batch, and alone
			return errors.Join(e.Effect(ctx, job.ID), errBoom)
		}
		return e.Effect(ctx, job.ID)
	})
	e.Accept(t, "a")
	p := e.Processor(t, inbox.ProcessorConfig{Backoff: later})
	e.Drain(t, p)
	row := e.Expect(t, "a", Pending, 1)
	if err := e.Repo.Retry(t.Context(), row.ID); err != nil {
		t.Fatal(err)
	}
	e.Expect(t, "a", Pending, 1)
	e.Drain(t, p)
	e.Expect(t, "a", Processed, 1)

	scheduled := e.Entries("scheduled")
	scheduled[0].Due = time.Now().Add(time.Hour)
	accepted(t, e.Repo, scheduled, inbox.Stored)
	if err := e.Repo.Retry(t.Context(), e.Row(t, "scheduled").ID); err != nil {
		t.Fatal(err)
	}
	e.Drain(t, p)
	e.Expect(t, "scheduled", Processed, 0)
}

func leavesProcessed(t *testing.T, e *Env) {
	e.Accept(t, "a")
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
	if _, err := e.once(t.Context(), "inline"); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "inline"} {
		row := e.Expect(t, id, Processed, 0)
		if err := e.Repo.Retry(t.Context(), row.ID); !errors.Is(err, inbox.ErrNotRetryable) {
			t.Errorf("retry: %v", err)
		}
		if err := e.Repo.EditAndRetry(t.Context(), row.ID, []byte(`{"id":"other"}`), inbox.EditOptions{}); !errors.Is(err, inbox.ErrNotRetryable) {
			t.Errorf("edit: %v", err)
		}
		if err := e.Repo.Discard(t.Context(), row.ID); !errors.Is(err, inbox.ErrNotDiscardable) {
			t.Errorf("discard: %v", err)
		}
	}
	if _, err := e.Repo.SkipKey(t.Context(), "none"); !errors.Is(err, inbox.ErrNotFound) {
		t.Errorf("skip key: %v", err)
	}
	if n, err := e.Repo.RetryAll(t.Context(), inbox.Filter{}, inbox.RetryAllOptions{}); n != 0 || err != nil {
		t.Errorf("retry all: %d, %v", n, err)
	}
	e.Expect(t, "a", Processed, 0)
}

func discards(t *testing.T, e *Env) {
	e.dies(t, e.Entries("dead")...)
	e.Accept(t, "pending", "kept")
	for _, id := range []string{"dead", "pending"} {
		row := e.Row(t, id)
		if err := e.Repo.Discard(t.Context(), row.ID); err != nil {
			t.Fatal(err)
		}
		if row := e.Row(t, id); row.Status != Dead || row.State != -1 {
			t.Errorf("%s is %+v", id, row)
		}
		if err := e.Repo.Discard(t.Context(), row.ID); !errors.Is(err, inbox.ErrNotDiscardable) {
			t.Errorf("a second time: %v", err)
		}
		if err := e.Repo.Retry(t.Context(), row.ID); !errors.Is(err, inbox.ErrNotRetryable) {
			t.Errorf("retry: %v", err)
		}
		status, err := e.Repo.Status(t.Context(), inbox.Identity{Source: "test", MessageID: id, Name: "job"})
		if err != nil || status.Kind != inbox.Dead {
			t.Errorf("the status is %+v, %v", status, err)
		}
		detail, err := e.Repo.Get(t.Context(), row.ID)
		if err != nil || !detail.Discarded || detail.DiscardedAt.IsZero() || !detail.DiedAt.IsZero() {
			t.Errorf("it is %+v, %v", detail, err)
		}
	}
	accepted(t, e.Repo, e.Entries("dead", "pending"), inbox.Duplicate, inbox.Duplicate)
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
	e.expectEffects(t, "kept")
	stats, err := e.Repo.Stats(t.Context())
	if err != nil || stats.Dead != 0 || stats.Pending != 0 {
		t.Errorf("the statistics say %+v, %v", stats, err)
	}
}

func edits(t *testing.T, e *Env) {
	e.dies(t, e.Entries("a", "b")...)
	e.Accept(t, "pending")
	id := e.Row(t, "a").ID
	for name, payload := range map[string]string{"no JSON": "<job/>", "another type": `{"id":1}`, "none": "", "too large": `{"id":"` + strings.Repeat("x", 1<<20) + `"}`} {
		var refused *inbox.PayloadError
		if err := e.Repo.EditAndRetry(t.Context(), id, []byte(payload), inbox.EditOptions{Force: true}); !errors.As(err, &refused) || refused.Name != "job" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if row := e.Expect(t, "a", Dead, 1); string(row.Payload) != `{"id":"a"}` {
		t.Errorf("a refused payload was stored: %q", row.Payload)
	}
	if err := e.Repo.EditAndRetry(t.Context(), e.Row(t, "pending").ID, []byte(`{"id":"x"}`), inbox.EditOptions{}); !errors.Is(err, inbox.ErrNotRetryable) {
		t.Errorf("a pending message: %v", err)
	}
	if err := e.Repo.EditAndRetry(t.Context(), id, []byte(`{"id":"edited"}`), inbox.EditOptions{}); err != nil {
		t.Fatal(err)
	}
	e.Expect(t, "a", Pending, 0)
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
	e.Expect(t, "a", Processed, 0)
	e.expectEffects(t, "edited", "pending")
	accepted(t, e.Repo, e.Entries("a"), inbox.Duplicate)
	edited := e.Entries("a")
	edited[0].Message = Job{ID: "edited"}
	accepted(t, e.Repo, edited, inbox.Mismatch)
	e.Expect(t, "b", Dead, 1)
}

func verbMeetsHandler(t *testing.T, e *Env) {
	verbs := map[string]func(id int64) error{
		"discard": func(id int64) error { return e.Repo.Discard(t.Context(), id) },
		"retry":   func(id int64) error { return e.Repo.Retry(t.Context(), id) },
		"edit": func(id int64) error {
			return e.Repo.EditAndRetry(t.Context(), id, []byte(`{"id":"edited"}`), inbox.EditOptions{})
		},
	}
	late := map[string]error{"discard": inbox.ErrNotDiscardable, "retry": inbox.ErrNotRetryable, "edit": inbox.ErrNotRetryable}
	entered, release := e.blocked("a")
	e.Accept(t, "a")
	id := e.Row(t, "a").ID
	var group sync.WaitGroup
	finish := sync.OnceFunc(func() {
		close(release)
		group.Wait()
	})
	defer finish()
	group.Go(func() { e.Drain(t, e.Processor(t, inbox.ProcessorConfig{})) })
	<-entered
	if e.Postgres() { // SQLite's one writer has no lock timeout: verbs wait in line
		for name, verb := range verbs {
			group.Go(func() {
				if err := verb(id); !errors.Is(err, inbox.ErrBusy) {
					t.Errorf("%s while a handler runs: %v", name, err)
				}
			})
		}
		Eventually(t, "the verbs have given up", func() bool {
			return e.Count(t, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 3
		})
		Eventually(t, "the verbs have given up", func() bool {
			return e.Count(t, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 0
		})
	}
	for name, verb := range verbs {
		group.Go(func() {
			if err := verb(id); !errors.Is(err, late[name]) {
				t.Errorf("%s of what a handler finishes meanwhile: %v", name, err)
			}
		})
	}
	if e.Postgres() {
		Eventually(t, "the verbs wait", func() bool {
			return e.Count(t, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 3
		})
	}
	finish()
	e.Expect(t, "a", Processed, 0)
	e.expectEffects(t, "a")
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

// audit records what an operator did.
type audit struct {
	mu   sync.Mutex
	acts []inbox.Observation
}

func (a *audit) Start(ctx context.Context, _ []inbox.Info) context.Context { return ctx }

func (a *audit) Observe(_ context.Context, o inbox.Observation) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if o.Kind == inbox.SawAction {
		a.acts = append(a.acts, o)
	}
}

func verbsAreObserved(t *testing.T, e *Env) {
	seen := &audit{}
	repo := e.NewRepository(t, inbox.Config{Observer: seen})
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
	for _, o := range seen.acts {
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
