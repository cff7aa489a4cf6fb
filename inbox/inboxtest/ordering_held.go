package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
)

var heldCases = []Case{
	{
		Name: "a dead message parks its key until it is retried",
		Rule: "The later ones wait for an operator; a retry brings it back to its place.",
		Body: deadParksKey,
	},
	{
		Name: "discarding a dead message lets its key go on",
		Rule: "Without the message that is in the way, the later ones are processed in order.",
		Body: discardFreesKey,
	},
	{
		Name: "skipping a key lets it go on and keeps the dead message",
		Rule: "SkipKey takes dead messages out of the way, and they stay dead.",
		Body: skipFreesKey,
	},
	{
		Name: "a name's policy can let a key go on without its dead messages",
		Rule: "With OnDead: Continue the later ones do not wait.",
		Body: continueAfterDeath,
	},
	{
		Name: "a message that became visible late does not run beside a later one",
		Rule: "Overlapping accepts may be processed in any order, but one at a time.",
		Body: lateMessageWaits,
	},
	{
		Name: "followers of a message in the way leave the claim",
		Rule: "However many wait, a claim finds the messages behind them.",
		Body: followersLeaveClaim,
	},
	{
		Name: "a paused message at the head of its key is not handed out",
		Rule: "GetMany looks for what holds others up, and keeps to pauses there too.",
		Body: pausedHead,
	},
	{
		Name: "an audit wakes a parked message that nobody would wake",
		Rule: "What went around the rules costs time, not messages.",
		Body: auditWakes,
	},
}

func deadParksKey(t *testing.T, e *Env) {
	p := e.dieFirst(t, inbox.ProcessorConfig{})
	e.expectOrder(t, "k:")
	e.Expect(t, "k:2", Pending, 0)
	e.acceptKeyed(t, "k", "k:4")
	e.Drain(t, p)
	e.expectOrder(t, "k:")
	e.On("k:1", e.write)
	if err := e.Repo.Retry(t.Context(), e.Row(t, "k:1").ID); err != nil {
		t.Fatal(err)
	}
	e.Drain(t, p)
	e.expectOrder(t, "k:", "k:1", "k:2", "k:3", "k:4")
}

func discardFreesKey(t *testing.T, e *Env) {
	p := e.dieFirst(t, inbox.ProcessorConfig{})
	if err := e.Repo.Discard(t.Context(), e.Row(t, "k:1").ID); err != nil {
		t.Fatal(err)
	}
	e.Drain(t, p)
	e.expectOrder(t, "k:", "k:2", "k:3")
}

func skipFreesKey(t *testing.T, e *Env) {
	p := e.dieFirst(t, inbox.ProcessorConfig{})
	if n, err := e.Repo.SkipKey(t.Context(), "k"); err != nil || n != 1 {
		t.Fatalf("%d, %v", n, err)
	}
	e.Drain(t, p)
	e.expectOrder(t, "k:", "k:2", "k:3")
	e.Expect(t, "k:1", Dead, 1)
}

func continueAfterDeath(t *testing.T, e *Env) {
	p := e.dieFirst(t, inbox.ProcessorConfig{Names: map[string]inbox.Policy{"job": {OnDead: inbox.Continue}}})
	e.MakeDue(t)
	e.Drain(t, p)
	e.expectOrder(t, "k:", "k:2", "k:3")
}

func lateMessageWaits(t *testing.T, e *Env) {
	if !e.Postgres() {
		t.Skip("SQLite has one writer: accepts do not overlap there")
	}
	u := e.inTurn([]string{"k:early", "k:late"})
	entered, release := make(chan struct{}), make(chan struct{})
	e.On("k:late", func(ctx context.Context, job Job) error {
		u.enter("k", job.ID)
		defer u.leave("k")
		close(entered)
		<-release
		return e.Effect(ctx, job.ID)
	})
	tx, err := e.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	early := e.Entries("k:early")
	early[0].OrderingKey = "k"
	if _, err := e.Repo.Add(t.Context(), tx, early); err != nil { // gets the smaller id
		t.Fatal(err)
	}
	e.acceptKeyed(t, "k", "k:late")
	start(t, e.Processor(t, inbox.ProcessorConfig{Workers: 2, PollInterval: 20 * time.Millisecond}))
	<-entered
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	e.Drain(t, e.processorOn(t, e.NewRepository(t, inbox.Config{}), inbox.ProcessorConfig{}))
	if e.Calls("k:early") > 0 {
		t.Error("the message that became visible late ran beside the later one")
	}
	close(release)
	e.processed(t, 2)
	u.check(t)
}

func followersLeaveClaim(t *testing.T, e *Env) {
	e.On("k:0", func(context.Context, Job) error { return inbox.Permanent(errors.New("hopeless")) })
	e.acceptKeyed(t, "k", "k:0")
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
	e.acceptKeyed(t, "k", ids("k:", 300)...)
	e.Accept(t, "free")
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{BatchSize: 4}))
	e.Expect(t, "free", Processed, 0)
	if n := e.Count(t, `SELECT count(*) FROM inbox_queue WHERE state = 0`); n != 0 {
		t.Errorf("%d of 300 messages that wait are still in the way of claims", n)
	}
	if n, err := e.Repo.SkipKey(t.Context(), "k"); err != nil || n != 1 {
		t.Fatalf("%d, %v", n, err)
	}
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{BatchSize: 4}))
	if got := e.effectsOf(t, "k:"); len(got) != 300 || !slices.IsSorted(got) {
		t.Errorf("%d effects, sorted: %v", len(got), slices.IsSorted(got))
	}
}

func pausedHead(t *testing.T, e *Env) {
	e.bulks(func([]string) error { return nil })
	entries := e.keyed("k", "k:1", "k:2")
	entries[0].Message = Bulk{ID: "k:1"}
	if _, err := e.Repo.Accept(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
	// So that a claim of one finds the follower.
	e.Exec(t, `UPDATE inbox_queue SET due = '2000-01-01T00:00:00.000000Z' WHERE id = ?`, e.Row(t, "k:2").ID)
	if err := e.Repo.Pause(t.Context(), "bulk"); err != nil {
		t.Fatal(err)
	}
	if got := e.claim(t, e.Repo, 1); len(got) != 0 {
		t.Errorf("GetMany handed out %q although it is paused", got)
	}
	if err := e.Repo.Resume(t.Context(), "bulk"); err != nil {
		t.Fatal(err)
	}
	if got := e.claim(t, e.Repo, 1); len(got) != 1 || got[0] != "k:1" {
		t.Errorf("GetMany handed out %q, want the head", got)
	}
}

func auditWakes(t *testing.T, e *Env) {
	e.acceptKeyed(t, "a", "a:1", "a:2")
	e.acceptKeyed(t, "b", "b:1")
	e.Exec(t, `UPDATE inbox_queue SET state = 1`)
	start(t, e.Processor(t, inbox.ProcessorConfig{Heartbeat: 30 * time.Millisecond, PollInterval: 50 * time.Millisecond}))
	e.processed(t, 3)
	e.expectOrder(t, "a:", "a:1", "a:2")
}

// dieFirst makes k:1 dead while k:2 and k:3 follow it.
func (e *Env) dieFirst(t *testing.T, config inbox.ProcessorConfig) *inbox.Processor {
	t.Helper()
	e.On("k:1", func(context.Context, Job) error { return inbox.Permanent(errors.New("hopeless")) })
	e.acceptKeyed(t, "k", "k:1", "k:2", "k:3")
	e.acceptKeyed(t, "other", "o:1")
	p := e.Processor(t, config)
	e.Drain(t, p)
	e.Expect(t, "k:1", Dead, 1)
	e.Expect(t, "o:1", Processed, 0)
	return p
}

func (e *Env) write(ctx context.Context, job Job) error { return e.Effect(ctx, job.ID) }

func failureStopsItsKey(t *testing.T, e *Env) {
	for _, writes := range []bool{false, true} {
		prefix := fmt.Sprint(writes, "-")
		fails := true
		e.On(prefix+"k:2", func(ctx context.Context, job Job) error {
			if writes || !fails {
				if err := e.Effect(ctx, job.ID); err != nil {
					return err
				}
			}
			if fails {
				return errors.New("not yet")
			}
			return nil
		})
		ids := []string{prefix + "k:1", prefix + "k:2", prefix + "k:3", prefix + "k:4"}
		e.acceptKeyed(t, prefix+"k", ids...)
		e.Accept(t, prefix+"free")
		p := e.Processor(t, inbox.ProcessorConfig{Backoff: later})
		e.Drain(t, p)
		e.expectOrder(t, prefix+"k:", ids[0])
		e.Expect(t, prefix+"k:2", Pending, 1)
		e.Expect(t, prefix+"free", Processed, 0)
		for _, id := range ids[2:] {
			e.Expect(t, id, Pending, 0)
			if e.Calls(id) > 0 {
				t.Errorf("%s was started", id)
			}
		}
		fails = false
		e.MakeDue(t)
		e.Drain(t, p)
		e.expectOrder(t, prefix+"k:", ids...)
	}
}
