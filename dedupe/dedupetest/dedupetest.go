// Package dedupetest checks a store of the dedupe guard against its contract.
//
// # Contract
//
// [Run] runs every rule as a subtest, on the store alone and with guards in
// front of it:
//
//	func TestStore(t *testing.T) {
//		dedupetest.Run(t, func(t *testing.T) dedupe.Store { return openEmptyStore(t) })
//	}
//
// # Crashes
//
// [RunKilled] kills a process with SIGKILL between every two steps of a run and
// checks what the guard promises then. It needs a store that outlives a process.
package dedupetest

import (
	"context"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/dedupe"
)

const (
	// long never ends during a test, short is waited for.
	long  = 10 * time.Minute
	short = 50 * time.Millisecond
	// patience bounds every wait on a busy machine.
	patience = 30 * time.Second
)

// Case is one rule of the contract.
type Case struct {
	Name string // what a subtest is called
	Rule string // the promise in one sentence, printed when it is broken
	Body func(t *testing.T, store dedupe.Store)
}

// Run checks every rule on the stores that open returns. Each call must give an
// empty store that goes away with t.
func Run(t *testing.T, open func(t *testing.T) dedupe.Store) {
	t.Helper()
	seen := map[string]bool{}
	for _, group := range [][]Case{storeCases, guardCases} {
		for _, c := range group {
			if seen[c.Name] {
				t.Fatalf("two rules are called %q", c.Name)
			}
			seen[c.Name] = true
			t.Run(c.Name, func(t *testing.T) {
				t.Parallel()
				t.Cleanup(func() {
					if t.Failed() {
						t.Logf("the rule: %s", c.Rule)
					}
				})
				c.Body(t, open(t))
			})
		}
	}
}

// tester has the calls of a store, ending the test on an error.
type tester struct {
	*testing.T
	store dedupe.Store
}

func (t tester) reserve(key dedupe.Key, token string, lease time.Duration) dedupe.Reservation {
	t.Helper()
	found, err := t.store.Reserve(t.Context(), key, token, lease)
	if err != nil {
		t.Fatalf("reserve: %v", err)
	}
	return found
}

// wantState reserves for long and checks the answer.
func (t tester) wantState(key dedupe.Key, token string, want dedupe.State) dedupe.Reservation {
	t.Helper()
	found := t.reserve(key, token, long)
	if found.State != want {
		t.Fatalf("reserve %q for %s: got %v, want %v", key, token, found.State, want)
	}
	return found
}

func (t tester) confirm(key dedupe.Key, token string, ttl time.Duration) (held bool) {
	t.Helper()
	held, err := t.store.Confirm(t.Context(), key, token, ttl)
	if err != nil {
		t.Fatalf("confirm: %v", err)
	}
	return held
}

func (t tester) release(key dedupe.Key, token string) (held bool) {
	t.Helper()
	held, err := t.store.Release(t.Context(), key, token)
	if err != nil {
		t.Fatalf("release: %v", err)
	}
	return held
}

// expire waits until nobody is in the way of a third party any more. It looks
// with a lease of the shortest length, and waits for the end of that one too.
func (t tester) expire(key dedupe.Key) {
	t.Helper()
	eventually(t.T, "the key becomes free", func() bool {
		return t.reserve(key, "probe", time.Millisecond).State == dedupe.Reserved
	})
	t.release(key, "probe")
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v in vain until %s", patience, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// patient is a context for waits that have to end.
func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}
