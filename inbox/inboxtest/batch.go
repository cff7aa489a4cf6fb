package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/mediator"
)

var batchCases = []Case{
	{
		"a batch handler gets the messages of a claim at once",
		"The processor groups a claimed batch by name and calls the batch handler once per group, in claim order.",
		batchAtOnce,
	},
	{
		"a failing batch handler charges only the guilty message",
		"When the batch handler fails, its messages are run one by one.",
		batchGuilty,
	},
	{
		"a message that does not decode is left out of the batch",
		"It dies alone; the others are handled in one call.",
		batchUndecodable,
	},
	{
		"grouping keeps the order inside an ordering key",
		"Messages of one key are handled in accept order, across names, although others are grouped.",
		batchOrder,
	},
}

// Bulk is a message with a batch handler.
type Bulk struct {
	ID string `json:"id"`
}

// bulks binds a batch handler that writes one effect per message, fails when fail
// says so, and records its calls.
func (e *Env) bulks(fail func(ids []string) error) (calls func() [][]string) {
	var mu sync.Mutex
	var all [][]string
	inbox.Register[Bulk](e.Names, "bulk")
	mediator.BindBatch(e.Requests, func(ctx context.Context, batch []Bulk) error {
		var ids, infos []string
		for _, b := range batch {
			ids = append(ids, b.ID)
		}
		for _, info := range inbox.BatchFromContext(ctx) {
			infos = append(infos, info.MessageID)
		}
		mu.Lock()
		all = append(all, ids)
		mu.Unlock()
		if !slices.Equal(ids, infos) {
			return inbox.Permanent(fmt.Errorf("the context names %v for %v", infos, ids))
		}
		for _, id := range ids {
			if err := e.Effect(ctx, id); err != nil {
				return err
			}
		}
		return fail(ids)
	})
	return func() [][]string {
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}

func (e *Env) acceptBulk(t *testing.T, ids ...string) {
	t.Helper()
	var entries []inbox.Entry
	for _, id := range ids {
		entries = append(entries, inbox.Entry{MessageID: id, Source: "test", Message: Bulk{ID: id}})
	}
	if _, err := e.Repo.Accept(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
}

func numbered(prefix string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s%02d", prefix, i)
	}
	return ids
}

func batchAtOnce(t *testing.T, e *Env) {
	calls := e.bulks(func([]string) error { return nil })
	ids := numbered("bulk", 25)
	e.acceptBulk(t, ids...)
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{BatchSize: 10}))
	if diff := cmp.Diff([][]string{ids[:10], ids[10:20], ids[20:]}, calls()); diff != "" {
		t.Error(diff)
	}
	for _, id := range ids {
		e.Expect(t, id, Processed, 0)
	}
	if n := len(e.Effects(t)); n != len(ids) {
		t.Errorf("%d effects", n)
	}
}

func batchGuilty(t *testing.T, e *Env) {
	bad := "bulk03"
	calls := e.bulks(func(ids []string) error {
		if slices.Contains(ids, bad) {
			return errors.New("one of them is bad")
		}
		return nil
	})
	ids := numbered("bulk", 8)
	e.acceptBulk(t, ids...)
	e.Accept(t, "neighbour")
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{MaxAttempts: 1}))
	for _, id := range append(ids, "neighbour") {
		if id == bad {
			e.Expect(t, id, Dead, 1)
		} else {
			e.Expect(t, id, Processed, 0)
		}
	}
	if n := len(e.Effects(t)); n != 8 { // seven and the neighbour
		t.Errorf("%d effects", n)
	}
	if first := calls()[0]; len(first) != 8 {
		t.Errorf("the first call got %v", first)
	}
}

func batchUndecodable(t *testing.T, e *Env) {
	calls := e.bulks(func([]string) error { return nil })
	e.acceptBulk(t, "a", "b")
	raw := inbox.Entry{MessageID: "broken", Source: "test", Message: inbox.Raw{Name: "bulk", Payload: []byte("{")}}
	if _, err := e.Repo.Accept(t.Context(), []inbox.Entry{raw}); err != nil {
		t.Fatal(err)
	}
	e.acceptBulk(t, "c")
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
	if diff := cmp.Diff([][]string{{"a", "b", "c"}}, calls()); diff != "" {
		t.Error(diff)
	}
	e.Expect(t, "broken", Dead, 1)
	if n := len(e.Effects(t)); n != 3 {
		t.Errorf("%d effects", n)
	}
}

func batchOrder(t *testing.T, e *Env) {
	e.bulks(func([]string) error { return nil })
	var entries []inbox.Entry
	var want []string
	for i := range 30 {
		id := fmt.Sprintf("m%02d", i)
		entry := inbox.Entry{MessageID: id, Source: "test", Message: Bulk{ID: id}, OrderingKey: "key"}
		if i%3 == 0 {
			entry.Message = Job{ID: id}
		}
		want = append(want, id)
		entries = append(entries, entry, inbox.Entry{MessageID: "free" + id, Source: "test", Message: Bulk{ID: "free" + id}})
	}
	if _, err := e.Repo.Accept(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{BatchSize: 100}))
	var got []string
	if err := e.DB.NewRaw(`SELECT job FROM effects WHERE job LIKE 'm%' ORDER BY n`).Scan(t.Context(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
