package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
)

var orderCases = []Case{
	{
		Name: "messages of a key run one at a time and in accept order",
		Rule: "Across processors and workers, an ordering key has one running handler, and its messages are processed in the order they were accepted.",
		Body: keysInOrder,
	},
	{
		Name: "a hot key is processed in order by many processors",
		Rule: "However many processors meet at one key, none of its messages overtakes another, and none is left behind.",
		Body: hotKey,
	},
	{
		Name: "a later message of a key waits while an earlier one backs off",
		Rule: "A retry keeps its place: the later ones wait, other keys and messages without a key do not.",
		Body: keyWaitsForRetry,
	},
	{
		Name: "a message due later holds up its key",
		Rule: "A message is not started while an earlier one of its key is unfinished, for whatever reason.",
		Body: keyWaitsForDueTime,
	},
	{
		Name: "messages of a key that become due in another order keep their own",
		Rule: "Due times decide when a key is worked on, not in which order.",
		Body: dueInAnotherOrder,
	},
	{
		Name: "a failure in a batch stops the later messages of its key only",
		Rule: "What follows the failed one in its key is not started, in the batch or one by one; everything else is processed.",
		Body: failureStopsItsKey,
	},
	{
		Name: "a key spans names and sources",
		Rule: "Only the key counts, not what carries it.",
		Body: keySpansNames,
	},
	{
		Name: "GetMany hands out what may start, and Process keeps the order",
		Rule: "In a loop of one's own a key is as safe as in Run.",
		Body: orderInOwnLoop,
	},
	{
		Name: "a batch handler gets the messages of a key in order",
		Rule: "Batches keep the order of a key, and a failure in one stops the key.",
		Body: batchHandlerInOrder,
	},
}

// acceptKeyed stores one job per id under an ordering key.
func (e *Env) acceptKeyed(t *testing.T, key string, ids ...string) {
	t.Helper()
	if _, err := e.Repo.Accept(t.Context(), e.keyed(key, ids...)); err != nil {
		t.Fatal(err)
	}
}

// turns watches that no key has two running handlers.
type turns struct {
	mu      sync.Mutex
	running map[string]string
	broken  []string
}

func (u *turns) enter(key, id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.running == nil {
		u.running = map[string]string{}
	}
	if other, ok := u.running[key]; ok {
		u.broken = append(u.broken, fmt.Sprintf("%s runs beside %s", id, other))
	}
	u.running[key] = id
}

func (u *turns) leave(key string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.running, key)
}

func (u *turns) check(t *testing.T) {
	t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, text := range u.broken {
		t.Error(text)
	}
}

// inTurn scripts jobs whose ids begin with their key and a colon.
func (e *Env) inTurn(ids []string) *turns {
	u := &turns{}
	for _, id := range ids {
		e.On(id, func(ctx context.Context, job Job) error {
			key, _, _ := strings.Cut(job.ID, ":")
			u.enter(key, job.ID)
			defer u.leave(key)
			return e.Effect(ctx, job.ID)
		})
	}
	return u
}

// effectsOf returns the jobs in the order in which their effects were written
// that begin with prefix.
func (e *Env) effectsOf(t *testing.T, prefix string) []string {
	t.Helper()
	var jobs []string
	if err := e.DB.NewRaw(`SELECT job FROM effects WHERE job LIKE ? ORDER BY n`, prefix+"%").Scan(context.WithoutCancel(t.Context()), &jobs); err != nil {
		t.Fatal(err)
	}
	return jobs
}

func (e *Env) expectOrder(t *testing.T, prefix string, want ...string) {
	t.Helper()
	if got := e.effectsOf(t, prefix); !slices.Equal(got, want) {
		t.Errorf("processed %q, want %q", got, want)
	}
}

func keysInOrder(t *testing.T, e *Env) {
	const keys, perKey = 8, 12
	var all []string
	for n := range perKey {
		for k := range keys {
			id := fmt.Sprintf("key%d:%02d", k, n)
			all = append(all, id)
		}
	}
	u := e.inTurn(all)
	for _, id := range all {
		key, _, _ := strings.Cut(id, ":")
		e.acceptKeyed(t, key, id)
	}
	for range 2 {
		start(t, e.processorOn(t, e.NewRepository(t, inbox.Config{}), inbox.ProcessorConfig{
			Workers: 3, BatchSize: 8, PollInterval: 50 * time.Millisecond,
		}))
	}
	e.processed(t, len(all))
	u.check(t)
	for k := range keys {
		var want []string
		for n := range perKey {
			want = append(want, fmt.Sprintf("key%d:%02d", k, n))
		}
		e.expectOrder(t, fmt.Sprintf("key%d:", k), want...)
	}
}

func hotKey(t *testing.T, e *Env) {
	var all []string
	for n := range 150 {
		all = append(all, fmt.Sprintf("hot:%03d", n))
	}
	u := e.inTurn(all)
	e.acceptKeyed(t, "hot", all[:100]...)
	for range 3 {
		start(t, e.processorOn(t, e.NewRepository(t, inbox.Config{}), inbox.ProcessorConfig{
			Workers: 2, BatchSize: 7, PollInterval: 50 * time.Millisecond,
		}))
	}
	for _, id := range all[100:] { // while they run
		e.acceptKeyed(t, "hot", id)
	}
	e.processed(t, len(all))
	u.check(t)
	e.expectOrder(t, "hot:", all...)
}

func keyWaitsForRetry(t *testing.T, e *Env) {
	failing := true
	e.On("k:1", func(ctx context.Context, job Job) error {
		if failing {
			return errors.New("not yet")
		}
		return e.Effect(ctx, job.ID)
	})
	e.acceptKeyed(t, "k", "k:1", "k:2", "k:3")
	e.acceptKeyed(t, "other", "o:1")
	e.Accept(t, "free")
	p := e.Processor(t, inbox.ProcessorConfig{Backoff: later})
	e.Drain(t, p)
	e.Expect(t, "k:1", Pending, 1)
	e.expectOrder(t, "k:")
	for _, id := range []string{"o:1", "free"} {
		e.Expect(t, id, Processed, 0)
	}
	if n := e.Calls("k:2") + e.Calls("k:3"); n != 0 {
		t.Errorf("later messages were started %d times", n)
	}
	failing = false
	e.MakeDue(t)
	e.Drain(t, p)
	e.expectOrder(t, "k:", "k:1", "k:2", "k:3")
}

func keyWaitsForDueTime(t *testing.T, e *Env) {
	entries := e.Entries("k:1", "k:2")
	entries[0].OrderingKey, entries[1].OrderingKey = "k", "k"
	entries[0].Due = time.Now().Add(time.Hour)
	if _, err := e.Repo.Accept(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
	p := e.Processor(t, inbox.ProcessorConfig{})
	e.Drain(t, p)
	e.expectOrder(t, "k:")
	e.MakeDue(t)
	e.Drain(t, p)
	e.expectOrder(t, "k:", "k:1", "k:2")
}

func dueInAnotherOrder(t *testing.T, e *Env) {
	e.acceptKeyed(t, "k", "k:1", "k:2", "k:3")
	e.Exec(t, `UPDATE inbox_queue SET due = '2000-01-01T00:00:00.000000Z' WHERE id = ?`, e.Row(t, "k:3").ID)
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
	e.expectOrder(t, "k:", "k:1", "k:2", "k:3")
}

func keySpansNames(t *testing.T, e *Env) {
	failing := true
	e.On("k:1", func(ctx context.Context, job Job) error {
		if failing {
			return errors.New("not yet")
		}
		return e.Effect(ctx, job.ID)
	})
	entries := e.Entries("k:1", "k:2")
	entries[0].OrderingKey, entries[1].OrderingKey = "k", "k"
	entries[1].Source = "elsewhere"
	entries[1].Message = Bulk{ID: "k:2"}
	e.bulks(func([]string) error { return nil })
	if _, err := e.Repo.Accept(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
	p := e.Processor(t, inbox.ProcessorConfig{Backoff: later})
	e.Drain(t, p)
	e.expectOrder(t, "k:")
	failing = false
	e.MakeDue(t)
	e.Drain(t, p)
	e.expectOrder(t, "k:", "k:1", "k:2")
}

func orderInOwnLoop(t *testing.T, e *Env) {
	fails := true
	e.On("k:1", func(ctx context.Context, job Job) error {
		if fails {
			return errors.New("not yet")
		}
		return e.Effect(ctx, job.ID)
	})
	e.acceptKeyed(t, "k", "k:1", "k:2")
	e.acceptKeyed(t, "other", "o:1")
	p := e.Processor(t, inbox.ProcessorConfig{Backoff: later})
	loop := func() (handed []string) {
		var claimed []*inbox.Claimed
		err := e.DB.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) (err error) {
			if claimed, err = e.Repo.GetMany(ctx, tx, 10); err != nil {
				return err
			}
			for _, c := range claimed {
				handed = append(handed, c.MessageID)
				if err := p.Process(ctx, tx, c); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		p.Committed(t.Context(), claimed...)
		return handed
	}
	loop()
	e.Expect(t, "k:1", Pending, 1)
	e.Expect(t, "k:2", Pending, 0)
	e.Expect(t, "o:1", Processed, 0)
	if handed := loop(); len(handed) != 0 {
		t.Errorf("GetMany handed out %q while an earlier message of the key waits", handed)
	}
	fails = false
	e.MakeDue(t)
	if handed := loop(); !slices.Equal(handed, []string{"k:1", "k:2"}) {
		t.Errorf("handed out %q", handed)
	}
	e.expectOrder(t, "k:", "k:1", "k:2")
}

func batchHandlerInOrder(t *testing.T, e *Env) {
	fails := true
	calls := e.bulks(func(ids []string) error {
		if fails && slices.Contains(ids, "k:1") {
			return errors.New("not yet")
		}
		return nil
	})
	entries := make([]inbox.Entry, 4)
	for i := range entries {
		id := fmt.Sprintf("k:%d", i)
		entries[i] = inbox.Entry{MessageID: id, OrderingKey: "k", Message: Bulk{ID: id}}
	}
	if _, err := e.Repo.Accept(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
	p := e.Processor(t, inbox.ProcessorConfig{Backoff: later})
	e.Drain(t, p)
	e.expectOrder(t, "k:", "k:0")
	for _, call := range calls()[1:] {
		if slices.Contains(call, "k:2") || slices.Contains(call, "k:3") {
			t.Errorf("%q was called behind a failed message", call)
		}
	}
	fails = false
	e.MakeDue(t)
	e.Drain(t, p)
	e.expectOrder(t, "k:", "k:0", "k:1", "k:2", "k:3")
}
