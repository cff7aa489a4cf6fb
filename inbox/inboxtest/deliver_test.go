package inboxtest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/inbox/inboxtest"
	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/mediator"
)

type greet struct{ Name string }

type unhandled struct{}

// greeter is an application: its handler greets, fails for "nobody" and is too
// early for "later".
func greeter(t *testing.T) (repo *inbox.Repository, proc *inbox.Processor, greeted *[]string) {
	t.Helper()
	names := inbox.NewNameMap()
	inbox.Register[greet](names, "greet")
	inbox.Register[unhandled](names, "unhandled")
	greeted = new([]string)
	requests := mediator.NewRequestMap()
	mediator.BindCommand(requests, func(_ context.Context, g greet) error {
		switch g.Name {
		case "nobody":
			return errors.New("nobody is there")
		case "later":
			return inbox.Postpone(time.Hour)
		case "dead":
			return inbox.Permanent(errors.New("too late"))
		}
		*greeted = append(*greeted, g.Name)
		return nil
	})
	repo, err := inbox.NewRepository(testdb.SQLite(t), names, inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := repo.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	proc, err = inbox.NewProcessor(repo, inbox.ProcessorConfig{
		Requests: mediator.NewRequestMediator(requests),
		Backoff:  inbox.Backoff{Base: time.Hour, Max: time.Hour},
	})
	if err != nil {
		t.Fatal(err)
	}
	return repo, proc, greeted
}

// recorder is a testing.T that remembers its failures.
type recorder struct {
	*testing.T
	failures []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(r)
}

// failures is what Deliver has to say.
func failures(t *testing.T, repo *inbox.Repository, proc *inbox.Processor, messages ...any) []string {
	t.Helper()
	r := &recorder{T: t}
	func() {
		defer func() {
			if p := recover(); p != nil && p != any(r) {
				panic(p)
			}
		}()
		inboxtest.Deliver(r, repo, proc, messages...)
	}()
	return r.failures
}

func TestDeliver(t *testing.T) {
	t.Parallel()

	t.Run("messages are processed in the order given before it returns", func(t *testing.T) {
		t.Parallel()
		repo, proc, greeted := greeter(t)
		inboxtest.Deliver(t, repo, proc, greet{"alice"}, &greet{"bob"}, inbox.Raw{Name: "greet", Payload: []byte(`{"Name":"carol"}`)})
		inboxtest.Deliver(t, repo, proc, greet{"alice"}) // another message with the same body
		inboxtest.Deliver(t, repo, proc)
		if want := []string{"alice", "bob", "carol", "alice"}; !slices.Equal(*greeted, want) {
			t.Errorf("greeted %v, want %v", *greeted, want)
		}
	})

	for name, c := range map[string]struct {
		message any
		want    string
	}{
		"a handler that fails fails the test":          {greet{"nobody"}, `"greet" were not processed: 0 more are dead, 1 more wait`},
		"a message that dies fails the test":           {greet{"dead"}, `"greet" were not processed: 1 more are dead, 0 more wait`},
		"a message that is postponed fails the test":   {greet{"later"}, `"greet" were not processed: 0 more are dead, 1 more wait`},
		"a message without a handler fails the test":   {unhandled{}, `"unhandled" were not processed`},
		"a message that is refused fails the test":     {struct{}{}, "not registered"},
		"a message that is not there fails the test":   {nil, "entry 1: message: nil"},
		"bytes that do not decode fail the test":       {inbox.Raw{Name: "greet", Payload: []byte(`[`)}, `1 more are dead`},
		"a name that is not registered fails the test": {inbox.Raw{Name: "gone"}, "not registered"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repo, proc, _ := greeter(t)
			got := failures(t, repo, proc, greet{"alice"}, c.message)
			if len(got) != 1 || !strings.Contains(got[0], c.want) {
				t.Errorf("failures %q, want one with %q", got, c.want)
			}
			// What failed before is not blamed on later messages.
			if got := failures(t, repo, proc, greet{"bob"}); len(got) != 0 {
				t.Errorf("then a message that succeeds: %q", got)
			}
		})
	}

	t.Run("a database that is away fails the test", func(t *testing.T) {
		t.Parallel()
		names := inbox.NewNameMap()
		inbox.Register[greet](names, "greet")
		repo, err := inbox.NewRepository(testdb.SQLite(t), names, inbox.Config{}) // never migrated
		if err != nil {
			t.Fatal(err)
		}
		_, proc, _ := greeter(t)
		if got := failures(t, repo, proc, greet{"alice"}); len(got) != 1 {
			t.Errorf("failures %q, want one", got)
		}
	})
}
