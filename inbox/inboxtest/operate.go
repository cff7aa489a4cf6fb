package inboxtest

import (
	"context"
	"errors"
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
