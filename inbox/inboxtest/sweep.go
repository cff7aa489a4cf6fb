package inboxtest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
)

var sweepCases = []Case{
	{
		Name: "a sweep keeps what is inside its retention",
		Rule: "One second before its time a message stays, one second after it goes, and so for each kind.",
		Body: sweepsByAge,
	},
	{
		Name: "a late effect is remembered as long",
		Rule: "The dedupe window does not end before the message was processed plus the window.",
		Body: remembersLate,
	},
	{
		Name: "a payload may go before its message",
		Rule: "The identity stays and tells a duplicate from a mismatch; unfinished messages keep their payload.",
		Body: sweepsPayloads,
	},
	{
		Name: "a swept head lets its key go on",
		Rule: "Deleting a dead or a pending message makes the next ones of its ordering key claimable.",
		Body: sweepReleasesKey,
	},
	{
		Name: "a sweep leaves alone what a handler works on",
		Rule: "A message that is past its retention and in a handler's hands is processed, and remembered.",
		Body: sweepMeetsHandler,
	},
	{
		Name: "one sweeper works at a time",
		Rule: "Many may be asked at once; together they remove everything once, and nobody waits.",
		Body: sweepsTogether,
	},
	{
		Name: "a sweep remembers how far it came",
		Rule: "The next one does not look again at what was kept, until a whole pass is due.",
		Body: sweepGoesOn,
	},
}

const day = 24 * time.Hour

// clocked is a repository and a processor under a clock of the test's own.
func (e *Env) clocked(t *testing.T, retention inbox.Retention) (*inbox.Repository, *inbox.Processor, *Clock) {
	t.Helper()
	clock := NewClock(time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC))
	repo := e.NewRepository(t, inbox.Config{Clock: clock.Now, Retention: retention})
	return repo, e.processorOn(t, repo, inbox.ProcessorConfig{}), clock
}

// store accepts one job per id.
func (e *Env) store(t *testing.T, repo *inbox.Repository, ids ...string) {
	t.Helper()
	if _, err := repo.Accept(t.Context(), e.Entries(ids...)); err != nil {
		t.Fatal(err)
	}
}

func (e *Env) sweep(t *testing.T, repo *inbox.Repository) inbox.SweepResult {
	t.Helper()
	result, err := repo.Sweep(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// stored reports whether a message is there, and its payload.
func (e *Env) stored(t *testing.T, id string) (message, payload bool) {
	t.Helper()
	return e.Count(t, `SELECT count(*) FROM inbox_messages WHERE message_id = ?`, id) == 1,
		e.Count(t, `SELECT count(*) FROM inbox_messages WHERE message_id = ? AND payload IS NOT NULL`, id) == 1
}

// kinds stores one message of each kind in the repository.
func (e *Env) kinds(t *testing.T, repo *inbox.Repository, p *inbox.Processor) {
	t.Helper()
	for _, id := range []string{"dead", "discarded"} {
		e.On(id, func(context.Context, Job) error { return inbox.Permanent(errBoom) })
	}
	accepted(t, repo, e.Entries("processed", "dead", "discarded"), inbox.Stored, inbox.Stored, inbox.Stored)
	e.Drain(t, p)
	if err := repo.Discard(t.Context(), e.Row(t, "discarded").ID); err != nil {
		t.Fatal(err)
	}
	if _, err := repo.HandleOnce(t.Context(), receipt("inline"), func(context.Context, bun.IDB) error { return nil }); err != nil {
		t.Fatal(err)
	}
	scheduled := e.Entries("pending", "scheduled")
	scheduled[1].Due = time.Date(2050, 1, 1, 0, 0, 0, 0, time.UTC)
	accepted(t, repo, scheduled, inbox.Stored, inbox.Stored)
}

func sweepsByAge(t *testing.T, e *Env) {
	repo, p, clock := e.clocked(t, inbox.Retention{
		DedupeWindow: 10 * day, PayloadRetention: 5 * day, PendingRetention: 40 * day, DeadRetention: 20 * day,
	})
	off, _, _ := e.clocked(t, inbox.Retention{DedupeWindow: -1, PayloadRetention: -1})
	e.kinds(t, repo, p)
	all := []string{"processed", "dead", "discarded", "inline", "pending", "scheduled"}
	gone, stripped := map[string]bool{}, map[string]bool{"inline": true}
	check := func(when string) {
		t.Helper()
		// Another repository begins with the first message again.
		fresh := e.NewRepository(t, inbox.Config{Clock: clock.Now, Retention: inbox.Retention{
			DedupeWindow: 10 * day, PayloadRetention: 5 * day, PendingRetention: 40 * day, DeadRetention: 20 * day,
		}})
		e.sweep(t, fresh)
		for _, id := range all {
			message, payload := e.stored(t, id)
			if message == gone[id] {
				t.Errorf("%s: %s is stored: %v", when, id, message)
			}
			if message && payload == stripped[id] {
				t.Errorf("%s: %s has its payload: %v", when, id, payload)
			}
		}
	}
	var passed time.Duration
	for _, step := range []struct {
		at       time.Duration
		gone     []string
		stripped []string
	}{
		{5 * day, nil, []string{"processed", "discarded"}},
		{10 * day, []string{"processed", "discarded", "inline"}, nil},
		{20 * day, []string{"dead"}, nil},
		{40 * day, []string{"pending"}, nil},
	} {
		clock.Advance(step.at - passed - time.Second)
		check(fmt.Sprintf("before %v", step.at))
		clock.Advance(2 * time.Second)
		passed = step.at + time.Second
		for _, id := range step.gone {
			gone[id] = true
		}
		for _, id := range step.stripped {
			stripped[id] = true
		}
		check(fmt.Sprintf("after %v", step.at))
	}
	if result := e.sweep(t, off); result.Deleted+result.Payloads != 0 {
		t.Errorf("a retention for ever removed %+v", result)
	}
	if n := e.Count(t, `SELECT count(*) FROM inbox_attempts`); n != 0 {
		t.Errorf("%d attempts are left of swept messages", n)
	}
	e.Exec(t, `DELETE FROM effects`) // of a message that nobody knows any more
}

func remembersLate(t *testing.T, e *Env) {
	repo, p, clock := e.clocked(t, inbox.Retention{DedupeWindow: 7 * day})
	accepted(t, repo, e.Entries("a"), inbox.Stored)
	clock.Advance(8 * day) // the processors were down
	if result := e.sweep(t, repo); result.Deleted != 0 {
		t.Errorf("a pending message was swept: %+v", result)
	}
	e.Drain(t, p)
	e.Expect(t, "a", Processed, 0)
	for range 7 {
		e.sweep(t, repo)
		accepted(t, repo, e.Entries("a"), inbox.Duplicate) // the broker replays
		clock.Advance(day - time.Second)
	}
	e.sweep(t, e.NewRepository(t, inbox.Config{Clock: clock.Now, Retention: inbox.Retention{DedupeWindow: 7 * day}}))
	accepted(t, repo, e.Entries("a"), inbox.Duplicate)
	clock.Advance(day)
	e.sweep(t, e.NewRepository(t, inbox.Config{Clock: clock.Now, Retention: inbox.Retention{DedupeWindow: 7 * day}}))
	accepted(t, repo, e.Entries("a"), inbox.Stored)
	if err := repo.Discard(t.Context(), e.Row(t, "a").ID); err != nil {
		t.Fatal(err)
	}
	e.expectEffects(t, "a")
}

func sweepsPayloads(t *testing.T, e *Env) {
	repo, p, clock := e.clocked(t, inbox.Retention{DedupeWindow: -1, PayloadRetention: day})
	e.kinds(t, repo, p)
	clock.Advance(1000 * day)
	result := e.sweep(t, repo)
	if result.Payloads != 2 || result.Deleted != 0 {
		t.Errorf("swept %+v", result)
	}
	for _, id := range []string{"dead", "pending", "scheduled"} {
		if _, payload := e.stored(t, id); !payload {
			t.Errorf("%s has lost its payload", id)
		}
	}
	other := e.Entries("processed")
	other[0].Message = Job{ID: "other"}
	accepted(t, repo, e.Entries("processed", "discarded"), inbox.Duplicate, inbox.Duplicate)
	accepted(t, repo, other, inbox.Mismatch)
	detail, err := repo.Get(t.Context(), e.Row(t, "processed").ID)
	if err != nil || detail.Payload != nil || !detail.PayloadRemovedAt.Equal(clock.Now()) {
		t.Errorf("it is %+v, %v", detail, err)
	}
	if detail, err := repo.Get(t.Context(), e.Row(t, "inline").ID); err != nil || !detail.PayloadRemovedAt.IsZero() {
		t.Errorf("a receipt is %+v, %v", detail, err)
	}
}

func sweepReleasesKey(t *testing.T, e *Env) {
	repo, p, clock := e.clocked(t, inbox.Retention{DedupeWindow: day, PendingRetention: 2 * day, DeadRetention: day})
	e.On("head", func(context.Context, Job) error { return inbox.Permanent(errBoom) })
	accepted(t, repo, e.keyed("key", "head", "old"), inbox.Stored, inbox.Stored)
	e.Drain(t, p)
	clock.Advance(day + time.Hour)
	accepted(t, repo, e.keyed("key", "young"), inbox.Stored)
	e.Drain(t, p)
	e.Expect(t, "old", Pending, 0)
	if result := e.sweep(t, repo); result.Deleted != 1 || result.Dead != 1 || e.Row(t, "old").State != 0 {
		t.Errorf("swept %+v, and the next one is in state %d", result, e.Row(t, "old").State)
	}
	e.Drain(t, p)
	e.Expect(t, "old", Processed, 0)
	e.Expect(t, "young", Processed, 0)

	e.On("waits", func(context.Context, Job) error { return inbox.Postpone(time.Hour) })
	accepted(t, repo, e.keyed("other", "waits", "behind"), inbox.Stored, inbox.Stored)
	e.Drain(t, p)
	clock.Advance(2*day + 30*time.Minute)
	again, _ := e.sameClock(t, clock)
	if result := e.sweep(t, again); result.Pending != 1 {
		// "waits" has been due for less than two days, "behind" for more
		t.Errorf("swept %+v", result)
	}
	clock.Advance(time.Hour)
	accepted(t, repo, e.keyed("other", "young too"), inbox.Stored)
	e.On("waits", func(context.Context, Job) error { return inbox.Postpone(100 * day) })
	repo, p = e.sameClock(t, clock)
	if result := e.sweep(t, repo); result.Pending != 1 {
		t.Errorf("swept %+v", result)
	}
	e.Drain(t, p)
	e.Expect(t, "young too", Processed, 0)
}

// sameClock makes a repository that has not swept yet.
func (e *Env) sameClock(t *testing.T, clock *Clock) (*inbox.Repository, *inbox.Processor) {
	t.Helper()
	repo := e.NewRepository(t, inbox.Config{Clock: clock.Now, Retention: inbox.Retention{DedupeWindow: day, PendingRetention: 2 * day, DeadRetention: day}})
	return repo, e.processorOn(t, repo, inbox.ProcessorConfig{})
}

func sweepMeetsHandler(t *testing.T, e *Env) {
	repo, p, clock := e.clocked(t, inbox.Retention{DedupeWindow: day, PendingRetention: 2 * day})
	entered, release := e.blocked("a")
	e.store(t, repo, "a", "b")
	clock.Advance(3 * day)
	var group sync.WaitGroup
	finish := sync.OnceFunc(func() {
		close(release)
		group.Wait()
	})
	defer finish()
	group.Go(func() { e.Drain(t, p) })
	<-entered
	if e.Postgres() { // SQLite's sweep waits for the writer
		if result := e.sweep(t, repo); result.Deleted != 0 {
			t.Errorf("swept %+v while the batch runs", result)
		}
	} else {
		group.Go(func() { e.sweep(t, repo) })
	}
	finish()
	e.sweep(t, e.NewRepository(t, inbox.Config{Clock: clock.Now, Retention: inbox.Retention{DedupeWindow: day, PendingRetention: 2 * day}}))
	e.Expect(t, "a", Processed, 0)
	e.expectEffects(t, "a", "b")
}

func sweepsTogether(t *testing.T, e *Env) {
	repo, p, clock := e.clocked(t, inbox.Retention{DedupeWindow: day})
	e.store(t, repo, ids("old", 3000)...)
	e.Drain(t, p)
	clock.Advance(2 * day)
	e.store(t, repo, ids("young", 10)...)
	var group sync.WaitGroup
	var mu sync.Mutex
	var total int64
	for range 5 {
		mine := e.NewRepository(t, inbox.Config{Clock: clock.Now, Retention: inbox.Retention{DedupeWindow: day}})
		for range 2 {
			group.Go(func() {
				result, err := mine.Sweep(t.Context())
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				total += result.Deleted
			})
		}
	}
	group.Wait()
	total += e.sweep(t, repo).Deleted // where each had left it to another
	if left := e.messages(t); total != 3000 || left != 10 {
		t.Errorf("%d swept, %d left", total, left)
	}
	e.Drain(t, p)
}

func sweepGoesOn(t *testing.T, e *Env) {
	repo, p, clock := e.clocked(t, inbox.Retention{DedupeWindow: day})
	kept := ids("kept", 700)
	for _, id := range kept {
		e.On(id, func(context.Context, Job) error { return inbox.Permanent(errBoom) })
	}
	e.store(t, repo, append(kept, "a")...)
	e.Drain(t, p)
	clock.Advance(2 * day)
	e.store(t, repo, "b")
	e.Drain(t, p)
	if first := e.sweep(t, repo); first.Deleted != 1 || first.Examined < 701 {
		t.Errorf("swept %+v", first)
	}
	clock.Advance(2 * day)
	if second := e.sweep(t, repo); second.Deleted != 1 || second.Examined > 10 {
		t.Errorf("swept %+v", second)
	}
	if third := e.sweep(t, repo); third.Examined != 0 {
		t.Errorf("swept %+v", third)
	}
}
