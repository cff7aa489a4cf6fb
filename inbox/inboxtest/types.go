package inboxtest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/mediator"
)

var typesCases = []Case{
	{
		Name: "a damaged row dies alone",
		Rule: "A row whose metadata somebody broke dies with a reason and does not keep its neighbours from being claimed.",
		Body: damagedRow,
	},
	{
		Name: "rows under a former name are decoded and processed",
		Rule: "A name or a Go type may be renamed while messages wait.",
		Body: formerNames,
	},
	{
		Name: "rows under a former name count for deduplication",
		Rule: "A redelivery after the renaming is a duplicate, or a mismatch, and nothing new.",
		Body: formerNamesDeduplicate,
	},
	{
		Name: "raw bytes under a former name are stored under the current one",
		Rule: "New rows carry the current name, whatever the sender calls it.",
		Body: formerNameOfRaw,
	},
	{
		Name: "a payload the codec refuses is dead at once, with the reason, and replays after the fix",
		Rule: "No retry can help a payload that does not decode; the payload stays as it was.",
		Body: refusedByCodec,
	},
	{
		Name: "a missing field is the zero value and an unknown one is passed by",
		Rule: "Old rows decode into the type of today.",
		Body: changedFields,
	},
	{
		Name: "values and pointers are one type",
		Rule: "A message reaches its handler whether it was given or bound as T or as *T.",
		Body: pointersAndValues,
	},
	{
		Name: "a codec of the application's own is used on both sides",
		Rule: "Codec turns messages into the stored payload and back.",
		Body: ownCodec,
	},
}

// RenamedJob is Job after somebody renamed the type.
type RenamedJob Job

// renamed returns what a new release of the application has: the type and the
// name are others, the old name is a former one.
func (e *Env) renamed(t *testing.T) (*inbox.Repository, *inbox.Processor) {
	t.Helper()
	names := inbox.NewNameMap()
	inbox.RegisterWith[RenamedJob](names, inbox.Registration{Name: "task", FormerNames: []string{"assignment", "job"}})
	repo, err := inbox.NewRepository(e.DB, names, inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	requests := mediator.NewRequestMap()
	mediator.BindCommand(requests, func(ctx context.Context, m RenamedJob) error { return e.Effect(ctx, m.ID) })
	p, err := inbox.NewProcessor(repo, inbox.ProcessorConfig{Requests: mediator.NewRequestMediator(requests)})
	if err != nil {
		t.Fatal(err)
	}
	return repo, p
}

func formerNames(t *testing.T, e *Env) {
	e.Accept(t, "old")
	repo, p := e.renamed(t)
	accepted(t, repo, []inbox.Entry{{MessageID: "new", Message: RenamedJob{ID: "new"}}}, inbox.Stored)
	if got := e.claim(t, repo, 10); len(got) != 2 {
		t.Errorf("claimed %v, want both", got)
	}
	if n, err := p.Drain(t.Context()); n != 2 || err != nil {
		t.Errorf("%d processed, %v", n, err)
	}
	if row := e.Expect(t, "old", Processed, 0); row.Name != "job" {
		t.Errorf("the old row is called %q now", row.Name)
	}
	if row := e.Expect(t, "new", Processed, 0); row.Name != "task" {
		t.Errorf("the new row is called %q", row.Name)
	}
}

func formerNamesDeduplicate(t *testing.T, e *Env) {
	repo, p := e.renamed(t)
	entry := func(id, note string) inbox.Entry {
		return inbox.Entry{Source: "test", MessageID: id, Message: RenamedJob{ID: id, Note: note}}
	}
	e.Accept(t, "pending", "processed")
	batch := []inbox.Entry{
		entry("fresh", ""), entry("pending", ""), entry("pending", "another body"), entry("fresh", ""),
		{Source: "elsewhere", MessageID: "pending", Message: RenamedJob{ID: "elsewhere"}},
	}
	outcomes := accepted(t, repo, batch, inbox.Stored, inbox.Duplicate, inbox.Mismatch, inbox.Duplicate, inbox.Stored)
	if want := (inbox.Identity{Source: "test", MessageID: "pending", Name: "task"}); outcomes[1].Identity != want {
		t.Errorf("identity %+v, want %+v", outcomes[1].Identity, want)
	}
	if n := e.messages(t); n != 4 {
		t.Errorf("%d rows, want 4", n)
	}
	if _, err := p.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	accepted(t, repo, []inbox.Entry{entry("processed", ""), entry("pending", "another body")}, inbox.Duplicate, inbox.Mismatch)
	if n, err := p.Drain(t.Context()); n != 0 || err != nil {
		t.Errorf("%d processed a second time, %v", n, err)
	}
}

func formerNameOfRaw(t *testing.T, e *Env) {
	repo, p := e.renamed(t)
	raw := func(name string) []inbox.Entry {
		return []inbox.Entry{{MessageID: "raw", Message: inbox.Raw{Name: name, Payload: []byte(`{"id":"raw"}`)}}}
	}
	outcomes := accepted(t, repo, raw("job"), inbox.Stored)
	if name := outcomes[0].Identity.Name; name != "task" {
		t.Errorf("the outcome is called %q", name)
	}
	if row := e.Row(t, "raw"); row.Name != "task" {
		t.Errorf("the row is called %q", row.Name)
	}
	accepted(t, repo, raw("assignment"), inbox.Duplicate)
	accepted(t, repo, raw("task"), inbox.Duplicate)
	if n, err := p.Drain(t.Context()); n != 1 || err != nil {
		t.Errorf("%d processed, %v", n, err)
	}
}

func refusedByCodec(t *testing.T, e *Env) {
	payloads := map[string]string{
		"empty":      ``,
		"no JSON":    `<job/>`,
		"truncated":  `{"id":"trunc`,
		"wrong type": `{"id":42}`,
		"two values": `{"id":"two values"} {"id":"two values"}`,
		"trailing":   `{"id":"trailing"}]`,
		"binary":     "\x00\xff",
		"bad number": `{"id":"n","any":99999e}`,
	}
	var entries []inbox.Entry
	for id, payload := range payloads {
		entries = append(entries, inbox.Entry{MessageID: id, Message: inbox.Raw{Name: "job", Payload: []byte(payload)}})
	}
	entries = append(entries, e.Entries("neighbour")...)
	if _, err := e.Repo.Accept(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{MaxAttempts: 5}))
	for id, payload := range payloads {
		row := e.Expect(t, id, Dead, 1)
		if !strings.Contains(row.LastError, `decode "job"`) || string(row.Payload) != payload {
			t.Errorf("%s: dead with %q and the payload %q", id, row.LastError, row.Payload)
		}
	}
	e.Expect(t, "neighbour", Processed, 0)

	// The fix: a release whose codec understands them.
	names := inbox.NewNameMap()
	inbox.RegisterWith[Job](names, inbox.Registration{Name: "job", Codec: lengthCodec{}})
	repo, err := inbox.NewRepository(e.DB, names, inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := inbox.NewProcessor(repo, inbox.ProcessorConfig{Requests: mediator.NewRequestMediator(e.Requests)})
	if err != nil {
		t.Fatal(err)
	}
	e.revive(t)
	e.On("fixed", func(context.Context, Job) error { return nil })
	if n, err := p.Drain(t.Context()); n != len(payloads) || err != nil {
		t.Errorf("%d of %d processed after the fix, %v", n, len(payloads), err)
	}
	for id := range payloads {
		e.Expect(t, id, Processed, 1)
	}
}

// lengthCodec understands everything.
type lengthCodec struct{}

func (lengthCodec) Encode(any) ([]byte, error) { return nil, errors.New("not in this test") }

func (lengthCodec) Decode(_ []byte, message any) error {
	message.(*Job).ID = "fixed"
	return nil
}

func changedFields(t *testing.T, e *Env) {
	got := map[string]Job{}
	for _, id := range []string{"", "more", "case"} {
		e.On(id, func(_ context.Context, job Job) error {
			got[id] = job
			return nil
		})
	}
	accepted(t, e.Repo, []inbox.Entry{
		{MessageID: "missing", Message: inbox.Raw{Name: "job", Payload: []byte(`{}`)}},
		{MessageID: "unknown", Message: inbox.Raw{Name: "job", Payload: []byte(`{"id":"more","note":"n","gone":{"a":[1,null]}}`)}},
	}, inbox.Stored, inbox.Stored)
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
	if got[""] != (Job{}) || got["more"] != (Job{ID: "more", Note: "n"}) {
		t.Errorf("decoded %+v", got)
	}
	e.Expect(t, "missing", Processed, 0)
	e.Expect(t, "unknown", Processed, 0)
}

// PointerJob is registered and bound as a pointer.
type PointerJob struct{ ID string }

func pointersAndValues(t *testing.T, e *Env) {
	inbox.Register[*PointerJob](e.Names, "pointer_job")
	mediator.BindCommand(e.Requests, func(ctx context.Context, m *PointerJob) error { return e.Effect(ctx, m.ID) })
	accepted(t, e.Repo, []inbox.Entry{
		{MessageID: "1", Message: Job{ID: "1"}},
		{MessageID: "2", Message: &Job{ID: "2"}},
		{MessageID: "3", Message: PointerJob{ID: "3"}},
		{MessageID: "4", Message: &PointerJob{ID: "4"}},
		{MessageID: "1", Message: &Job{ID: "1"}},
		{MessageID: "5", Message: &inbox.Raw{Name: "pointer_job", Payload: []byte(`{"ID":"5"}`)}},
	}, inbox.Stored, inbox.Stored, inbox.Stored, inbox.Stored, inbox.Duplicate, inbox.Stored)
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
	if effects := e.Effects(t); len(effects) != 5 {
		t.Errorf("effects %v", effects)
	}
}

// reversed stores the id of an OtherJob backwards, NULs and all.
type reversed struct{}

func (reversed) Encode(message any) ([]byte, error) {
	var job OtherJob
	switch m := message.(type) {
	case OtherJob:
		job = m
	case *OtherJob:
		job = *m
	}
	payload := []byte(job.ID + "\x00\xff")
	for i, j := 0, len(payload)-1; i < j; i, j = i+1, j-1 {
		payload[i], payload[j] = payload[j], payload[i]
	}
	return payload, nil
}

func (reversed) Decode(payload []byte, message any) error {
	if len(payload) < 2 || payload[0] != 0xff || payload[1] != 0 {
		return errors.New("not reversed")
	}
	id := make([]byte, 0, len(payload))
	for i := len(payload) - 1; i > 1; i-- {
		id = append(id, payload[i])
	}
	message.(*OtherJob).ID = string(id)
	return nil
}

func ownCodec(t *testing.T, e *Env) {
	inbox.RegisterWith[OtherJob](e.Names, inbox.Registration{Name: "other_job", Codec: reversed{}})
	mediator.BindCommand(e.Requests, func(ctx context.Context, m OtherJob) error { return e.Effect(ctx, m.ID) })
	accepted(t, e.Repo, []inbox.Entry{
		{MessageID: "a", Message: OtherJob{ID: "abc"}},
		{MessageID: "a", Message: &OtherJob{ID: "abc"}},
		{MessageID: "b", Message: &OtherJob{ID: "def"}},
	}, inbox.Stored, inbox.Duplicate, inbox.Stored)
	if got, want := string(e.Row(t, "a").Payload), "\xff\x00cba"; got != want {
		t.Errorf("stored %q, want %q", got, want)
	}
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
	if effects := e.Effects(t); effects["abc"] != 1 || effects["def"] != 1 {
		t.Errorf("effects %v", effects)
	}
}

func damagedRow(t *testing.T, e *Env) {
	e.Accept(t, "a", "damaged", "b")
	e.Exec(t, `UPDATE inbox_messages SET metadata = '{"half' WHERE message_id = 'damaged'`)
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
	e.Expect(t, "a", Processed, 0)
	e.Expect(t, "b", Processed, 0)
	if row := e.Expect(t, "damaged", Dead, 1); !strings.Contains(row.LastError, "metadata") {
		t.Errorf("the reason: %q", row.LastError)
	}
}
