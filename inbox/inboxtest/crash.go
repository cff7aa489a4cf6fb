package inboxtest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/mediator"
)

// CrashPoint is a place between two steps of accepting or processing.
type CrashPoint string

// The places, in the order in which a message passes them.
const (
	// BeforeAccept: the messages are about to be stored.
	BeforeAccept CrashPoint = "before the accept is stored"
	// AfterAccept: Accept has committed, and its caller has not heard of it.
	AfterAccept CrashPoint = "between the accept and the answer"
	// BeforeHandler: the messages are claimed, the handler is about to run.
	BeforeHandler CrashPoint = "before the handler"
	// AfterHandler: the handler has returned, what it wrote is not committed.
	AfterHandler CrashPoint = "after the handler"
	// BeforeSettle: the messages are about to be marked processed.
	BeforeSettle CrashPoint = "before the messages are settled"
	// BeforeCommit: they are marked, and COMMIT is about to be sent.
	BeforeCommit CrashPoint = "before COMMIT"
	// AfterCommit: the effects are committed, and the processor does not know.
	AfterCommit CrashPoint = "after COMMIT"
)

// CrashPoints returns all places, in the order in which a message passes them.
func CrashPoints() []CrashPoint {
	return []CrashPoint{BeforeAccept, AfterAccept, BeforeHandler, AfterHandler, BeforeSettle, BeforeCommit, AfterCommit}
}

// Crash makes something happen at a CrashPoint. It is a hook of bun and a
// middleware of the mediators, so the program under test needs no code for it:
//
//	crash := inboxtest.NewCrash(inboxtest.BeforeCommit, 1, inboxtest.Kill)
//	db = db.WithQueryHook(crash) // then NewRepository(db, ...)
//	requests := mediator.NewRequestMediator(requestMap, crash.Middleware)
//
// It sees what goes through this db and these mediators. With several workers,
// or with other transactions beside them on the same db, the COMMIT that it sees
// after a handler or an accept may be somebody else's: use Drain, or one worker,
// and one place per process.
type Crash struct {
	point  CrashPoint
	action func()

	mu      sync.Mutex
	left    int  // passes until it happens
	open    int  // transactions begun and not ended
	handled bool // a handler has returned since the last COMMIT
	stored  bool // messages were inserted in a transaction since the last COMMIT
	met     bool
}

// NewCrash returns a Crash that calls action when point is passed for the n-th
// time, n from 1, and never again. The action is [Kill] or [Exit] in a child
// process; in the test's own process it is a method of a [Proxy] ([Proxy.Cut]
// drops the connections at that place, a call of [Proxy.OnCommit] at
// BeforeCommit makes the reply of that COMMIT vanish), the end of a context, or
// a panic. It runs in the goroutine that got there. A panic at BeforeHandler or
// AfterHandler is a failed attempt; anywhere else it ends the process.
//
// It panics on an unknown point, n < 1, or a nil action.
func NewCrash(point CrashPoint, n int, action func()) *Crash {
	known := false
	for _, p := range CrashPoints() {
		known = known || p == point
	}
	if !known || n < 1 || action == nil {
		panic(fmt.Sprintf("inboxtest: NewCrash(%q, %d): want one of CrashPoints, n from 1, and an action", point, n))
	}
	return &Crash{point: point, left: n, action: action}
}

// Met reports that the place was reached and the action called.
func (c *Crash) Met() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.met
}

// Middleware sees the handlers. A batch handler counts once.
func (c *Crash) Middleware(ctx context.Context, message any, next mediator.Next) (any, error) {
	c.pass(BeforeHandler)
	response, err := next(ctx, message)
	c.mu.Lock()
	c.handled = c.handled || err == nil
	c.mu.Unlock()
	c.pass(AfterHandler)
	return response, err
}

// BeforeQuery is part of bun.QueryHook.
func (c *Crash) BeforeQuery(ctx context.Context, event *bun.QueryEvent) context.Context {
	switch {
	case stores(event.Query):
		c.pass(BeforeAccept)
	case settles(event.Query) && c.hasHandled():
		c.pass(BeforeSettle)
	case event.Query == "COMMIT" && c.hasHandled():
		c.pass(BeforeCommit)
	}
	return ctx
}

// AfterQuery is part of bun.QueryHook.
func (c *Crash) AfterQuery(_ context.Context, event *bun.QueryEvent) {
	for _, point := range c.passed(event.Query, event.Err == nil) {
		c.pass(point)
	}
}

// passed keeps the books and returns the places behind a query.
func (c *Crash) passed(query string, ok bool) (points []CrashPoint) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case query == "BEGIN" && ok:
		c.open++
	case query == "COMMIT" || query == "ROLLBACK":
		if query == "COMMIT" && ok && c.stored {
			points = append(points, AfterAccept)
		}
		if query == "COMMIT" && ok && c.handled {
			points = append(points, AfterCommit)
		}
		c.open = max(c.open-1, 0)
		c.handled, c.stored = false, false
	case stores(query) && ok && c.open == 0: // one statement is all of it on PostgreSQL
		points = append(points, AfterAccept)
	case stores(query) && ok:
		c.stored = true
	}
	return points
}

func (c *Crash) hasHandled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.handled
}

func (c *Crash) pass(point CrashPoint) {
	if point != c.point {
		return
	}
	c.mu.Lock()
	c.left--
	now := c.left == 0
	c.met = c.met || now
	c.mu.Unlock()
	if now {
		c.action()
	}
}

// stores and settles recognise the inbox's statements by their tables, whatever
// prefix they have. Receipts, which are processed from the start, are not accepts.
func stores(query string) bool {
	_, into, found := strings.Cut(query, "INSERT INTO ")
	table, rest, _ := strings.Cut(into, " (")
	columns, _, _ := strings.Cut(rest, ")")
	return found && strings.HasSuffix(table, `_messages"`) && !strings.Contains(columns, "processed_at")
}

func settles(query string) bool {
	_, from, found := strings.Cut(query, "DELETE FROM ")
	fields := strings.Fields(from)
	return found && len(fields) > 0 && strings.HasSuffix(fields[0], `_queue"`)
}

// Kill is the end of this process that nothing can prepare for: SIGKILL, as from
// the kernel when memory is short. No deferred function runs. For child
// processes of a test.
func Kill() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill()
	}
	select {}
}

// Exit ends this process at once with the code that a shell reports for SIGKILL:
// 137. For child processes of a test.
func Exit() { os.Exit(137) }
