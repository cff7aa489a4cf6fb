package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/mediator"
)

var outcomeCases = []Case{
	{
		Name: "business rows and status commit together",
		Rule: "A message is processed exactly when its effect is in, whatever failed on the way.",
		Body: commitTogether,
	},
	{
		Name: "event handlers share one transaction",
		Rule: "When the second handler of an event fails, what the first one wrote is undone, and it is there once in the end.",
		Body: eventHandlers,
	},
	{
		Name: "names without a handler are left alone",
		Rule: "A processor that does not know a name neither tries nor charges its messages; one that does processes them.",
		Body: namesWithoutHandler,
	},
	{
		Name: "a message that does not decode is dead at once",
		Rule: "It dies with a reason, and its batch is not rolled back for it.",
		Body: undecodable,
	},
	{
		Name: "a handler knows its message",
		Rule: "FromContext describes the message in hand, and nothing outside the inbox.",
		Body: fromContext,
	},
}

func commitTogether(t *testing.T, e *Env) {
	var ids []string
	for i := range 40 {
		id := fmt.Sprintf("job %d", i)
		ids = append(ids, id)
		if i%3 != 0 {
			continue
		}
		tries := i % 4 // none to three failures, at most one of them after the death
		e.On(id, func(ctx context.Context, job Job) error {
			if err := e.Effect(ctx, job.ID); err != nil {
				return err
			}
			if info, ok := inbox.FromContext(ctx); !ok || info.Attempt <= tries {
				return errors.New("not yet")
			}
			return nil
		})
	}
	e.Accept(t, ids...)
	e.finish(t, e.Processor(t, inbox.ProcessorConfig{MaxAttempts: 3}))
	effects := e.Effects(t)
	for i, id := range ids {
		tries := 0
		if i%3 == 0 {
			tries = i % 4
		}
		if tries < 3 {
			e.Expect(t, id, Processed, tries)
		} else {
			e.Expect(t, id, Dead, 3)
		}
		if want := 1 - tries/3; effects[id] != want {
			t.Errorf("%s has %d effects, want %d", id, effects[id], want)
		}
	}
}

// Notice is an event of the contract.
type Notice struct {
	ID string `json:"id"`
}

func eventHandlers(t *testing.T, e *Env) {
	inbox.Register[Notice](e.Names, "notice")
	failures := 0
	mediator.BindEvent(e.Events, "writes", func(ctx context.Context, n Notice) error { return e.Effect(ctx, "writes "+n.ID) })
	mediator.BindEvent(e.Events, "fails twice", func(ctx context.Context, n Notice) error {
		if info, _ := inbox.FromContext(ctx); info.Attempt <= 2 {
			failures++
			return errors.New("not yet")
		}
		return e.Effect(ctx, "fails twice "+n.ID)
	})
	if _, err := e.Repo.Accept(t.Context(), []inbox.Entry{{MessageID: "n", Source: "test", Message: Notice{ID: "n"}}}); err != nil {
		t.Fatal(err)
	}
	e.finish(t, e.Processor(t, inbox.ProcessorConfig{}))
	row := e.Expect(t, "n", Processed, 2)
	if !strings.Contains(row.LastError, "fails twice") {
		t.Errorf("the last error does not name the handler: %q", row.LastError)
	}
	effects := e.Effects(t)
	if effects["writes n"] != 1 || effects["fails twice n"] != 1 || failures < 2 {
		t.Errorf("effects: %v after %d failures", effects, failures)
	}
}

func namesWithoutHandler(t *testing.T, e *Env) {
	inbox.Register[Notice](e.Names, "notice")
	var ids []string
	var entries []inbox.Entry
	for i := range 10 {
		id := fmt.Sprintf("notice %d", i)
		ids = append(ids, id)
		entries = append(entries, inbox.Entry{MessageID: id, Source: "test", Message: Notice{ID: id}})
	}
	if _, err := e.Repo.Accept(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
	e.Accept(t, "job")
	v1 := e.Processor(t, inbox.ProcessorConfig{}) // the event has no handler yet
	for range 3 {
		e.Drain(t, v1)
	}
	e.Expect(t, "job", Processed, 0)
	for _, id := range ids {
		if row := e.Expect(t, id, Pending, 0); row.Interruptions != 0 || row.LastError != "" {
			t.Errorf("%s was touched: %+v", id, row)
		}
	}
	stats, err := e.Repo.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := stats.Names["notice"]; got.Pending != 10 || !got.Registered {
		t.Errorf("the statistics say %+v", got)
	}

	mediator.BindEvent(e.Events, "new", func(ctx context.Context, n Notice) error { return e.Effect(ctx, n.ID) })
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
	for _, id := range ids {
		e.Expect(t, id, Processed, 0)
	}
}

func undecodable(t *testing.T, e *Env) {
	entries := e.Entries("a", "b", "c")
	entries[1].Message = inbox.Raw{Name: "job", Payload: []byte(`{"id": 1`)}
	if _, err := e.Repo.Accept(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
	row := e.Expect(t, "b", Dead, 1)
	if row.LastError == "" || string(row.Payload) != `{"id": 1` {
		t.Errorf("kept: %q, error %q", row.Payload, row.LastError)
	}
	for _, id := range []string{"a", "c"} {
		e.Expect(t, id, Processed, 0)
		if calls := e.Calls(id); calls != 1 {
			t.Errorf("%s ran %d times: the batch was rolled back", id, calls)
		}
	}
}

func fromContext(t *testing.T, e *Env) {
	if _, ok := inbox.FromContext(t.Context()); ok {
		t.Error("a context from outside describes a message")
	}
	var seen []inbox.Info
	e.On("a", func(ctx context.Context, _ Job) error {
		info, ok := inbox.FromContext(ctx)
		if !ok {
			return errors.New("no message in the context")
		}
		seen = append(seen, info)
		if info.Attempt == 1 {
			return errors.New("again")
		}
		return nil
	})
	entries := e.Entries("a")
	entries[0].Metadata = map[string]string{"trace": "9007199254740993"}
	outcomes, err := e.Repo.Accept(t.Context(), entries)
	if err != nil {
		t.Fatal(err)
	}
	e.finish(t, e.Processor(t, inbox.ProcessorConfig{}))
	e.Expect(t, "a", Processed, 1)
	for _, info := range seen {
		if info.ID != outcomes[0].ID || info.MessageID != "a" || info.Source != "test" || info.Name != "job" ||
			info.Metadata["trace"] != "9007199254740993" || info.ReceivedAt.IsZero() {
			t.Errorf("the handler was told %+v", info)
		}
	}
	attempts := func(info inbox.Info) int { return info.Attempt }
	if len(seen) < 2 || attempts(seen[0]) != 1 || attempts(seen[len(seen)-1]) != 2 || !slices.IsSortedFunc(seen, func(a, b inbox.Info) int { return a.Attempt - b.Attempt }) {
		t.Errorf("attempts: %+v", seen)
	}
}
