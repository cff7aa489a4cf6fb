package inboxtest

import (
	"testing"

	"github.com/letterbox-go/letterbox/inbox"
)

// Deliver stores messages under fresh ids, in one batch and in the order given,
// and processes them before it returns, so that a test of a handler reads like a
// function call:
//
//	inboxtest.Deliver(t, repo, processor, CreditAccount{Account: "alice", Cents: 500})
//	// now check what the handler wrote
//
// The messages are Go values of registered types, or inbox.Raw. What was due
// before is processed first. Deliver fails t when a message is refused, or is
// not processed in the first run of its handler: the handler failed, postponed
// it, or proc has none for it.
//
// It tells from the inbox's statistics, so nobody else should be adding messages
// of the same names meanwhile.
func Deliver(t testing.TB, repo *inbox.Repository, proc *inbox.Processor, messages ...any) {
	t.Helper()
	drain(t, proc)
	before := unfinished(t, repo)
	entries := make([]inbox.Entry, len(messages))
	for i, message := range messages {
		entries[i] = inbox.Entry{MessageID: inbox.NewMessageID(), Source: "inboxtest", Message: message}
	}
	outcomes, err := repo.Accept(t.Context(), entries)
	if err != nil {
		t.Fatalf("inboxtest: deliver: %v", err)
	}
	drain(t, proc)
	after := unfinished(t, repo)
	checked := map[string]bool{}
	for _, o := range outcomes {
		name := o.Identity.Name
		was, is := before[name], after[name]
		if n := is.Pending + is.Dead - was.Pending - was.Dead; n > 0 && !checked[name] {
			t.Errorf("inboxtest: deliver: %d messages %q were not processed: %d more are dead, %d more wait (the processor's Logger says why)",
				n, name, is.Dead-was.Dead, is.Pending-was.Pending)
		}
		checked[name] = true
	}
}

func drain(t testing.TB, proc *inbox.Processor) {
	t.Helper()
	if _, err := proc.Drain(t.Context()); err != nil {
		t.Fatalf("inboxtest: deliver: %v", err)
	}
}

func unfinished(t testing.TB, repo *inbox.Repository) map[string]inbox.NameStats {
	t.Helper()
	stats, err := repo.Stats(t.Context())
	if err != nil {
		t.Fatalf("inboxtest: deliver: %v", err)
	}
	return stats.Names
}
