// Package inboxtest checks an inbox against its guarantees on a real database,
// and helps applications to test their handlers.
//
// # Contract
//
// Run runs every rule of the inbox as a subtest on the database that the given
// function opens. It is how a driver, a pooler or a server version is tried:
//
//	func TestInbox(t *testing.T) {
//		inboxtest.Run(t, func(t *testing.T) *bun.DB { return openEmptyDatabase(t) })
//	}
//
// # Handlers
//
// Deliver stores messages and processes them before it returns, so that a test
// of a handler reads like a function call. A Clock stands in for the database's, so
// that a retry or a retention is reached without waiting.
//
// # Faults
//
// A Crash makes something happen at a named place: Kill ends the process, a Proxy
// in front of PostgreSQL cuts, swallows, delays or refuses, and loses the request
// or the reply of a COMMIT. ExactlyOnce says afterwards whether every processed
// message has had its effect once, and whether every other one can be found.
package inboxtest

import (
	"testing"

	"github.com/uptrace/bun"
)

// Case is one rule of the contract.
type Case struct {
	Name string // what a subtest is called
	Rule string // the promise in one sentence, printed when it is broken
	Body func(t *testing.T, env *Env)
}

// Run checks every rule on databases that open returns: each call must give a
// fresh, empty database, PostgreSQL or SQLite, that goes away with t.
func Run(t *testing.T, open func(t *testing.T) *bun.DB) {
	t.Helper()
	RunWith(t, Options{}, open)
}

// Options are how the contract's repositories are set up.
type Options struct {
	// DriverArgs is inbox.Config.DriverArgs. Default: none.
	DriverArgs []any
}

// RunWith is Run with options.
func RunWith(t *testing.T, options Options, open func(t *testing.T) *bun.DB) {
	t.Helper()
	seen := map[string]bool{}
	for _, group := range [][]Case{onceCases, batchCases, acceptCases, transactCases, commitCases, identityCases, payloadCases, entryCases, claimCases, typesCases, dispatchCases, retryCases, orderCases, heldCases, observeCases, carefulCases, runCases, operateCases, manyCases, listCases, sweepCases} {
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
				env := newEnv(t, open(t), options)
				t.Cleanup(func() { env.checkInvariants(t) }) // after processors have been stopped
				c.Body(t, env)
			})
		}
	}
}
