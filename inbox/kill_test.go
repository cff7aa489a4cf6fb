package inbox_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
)

// killRounds is how often a process dies at each point.
const killRounds = 20

// The points where a processor dies.
const (
	beforeWrite  = "before the handler writes"
	afterWrite   = "after the handler wrote"
	beforeCommit = "right before COMMIT"
	afterCommit  = "right after COMMIT"
	atPoison     = "when it handles the poison"
	atThird      = "when it handles its third message"
)

// The points where an acceptor dies.
const (
	beforeStored = "before the accept is stored"
	afterStored  = "between the accept and the answer"
)

// killAt makes this process kill itself at a point, for which the second message
// of a batch is the first chance: so one neighbour has run.
func (n *node) killAt(point string) {
	second := func() func() bool {
		calls := 0
		return func() bool { calls++; return calls == 2 }
	}()
	commits := func(event *bun.QueryEvent) bool { return event.Query == "COMMIT" && n.handled.Load() }
	// On SQLite the last statement of an accept is its COMMIT.
	accepts := func(event *bun.QueryEvent) bool {
		return event.Query == "COMMIT" || n.postgres() && strings.Contains(event.Query, "INSERT INTO")
	}
	var h hook
	switch point {
	case beforeWrite, afterWrite:
		dieAtSecond := func(context.Context, string) error {
			if second() {
				die()
			}
			return nil
		}
		if point == beforeWrite {
			n.before = dieAtSecond
		} else {
			n.after = dieAtSecond
		}
	case atPoison:
		n.before = func(_ context.Context, id string) error {
			if id == "poison" {
				die()
			}
			return nil
		}
	case atThird:
		calls := 0
		n.before = func(context.Context, string) error {
			if calls++; calls == 3 {
				die()
			}
			return nil
		}
	case beforeCommit:
		h.before = dieIf(commits)
	case afterCommit:
		h.after = dieIf(commits)
	case beforeStored:
		h.before = dieIf(accepts)
	case afterStored:
		h.after = dieIf(accepts)
	}
	n.db = n.db.WithQueryHook(h)
	n.reopen()
}

func dieIf(at func(*bun.QueryEvent) bool) func(*bun.QueryEvent) {
	return func(event *bun.QueryEvent) {
		if at(event) {
			die()
		}
	}
}

// reopen makes the repository anew, on the hooked database.
func (n *node) reopen() {
	repo, err := inbox.NewRepository(n.db, n.names, inbox.Config{})
	if err != nil {
		panic(err)
	}
	n.repo = repo
}

// A processor that dies leaves every message either done or as if it had never
// been touched.
func TestProcessorKilled(t *testing.T) {
	t.Parallel()
	for _, point := range []string{beforeWrite, afterWrite, beforeCommit, afterCommit} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			targets(t, func(t *testing.T, target target) {
				n := openNode(t, target, false)
				const perRound = 3
				for round := range killRounds {
					n.accept(t, taskIDs(fmt.Sprint(round, "-"), perRound)...)
					n.exec(t, `DELETE FROM inbox_processors`) // or the next one would be careful
					before := n.count(t, `SELECT count(*) FROM effects`)
					err := order{Role: "drain", Target: target, Point: point, Batch: 2}.child(t)()
					if !killed(err) {
						t.Fatalf("round %d: the child was to be killed %s: %v", round, point, err)
					}
					committed := n.count(t, `SELECT count(*) FROM effects`) > before
					if committed != (point == afterCommit) {
						t.Fatalf("round %d: killed %s, and effects committed: %v", round, point, committed)
					}
				}
				n.drainAll(t)
				n.expectOnce(t, killRounds*perRound)
				if n := n.count(t, `SELECT count(*) FROM inbox_messages WHERE attempts > 0`); n > 0 {
					t.Errorf("%d messages were charged for the death of a process", n)
				}
			})
		})
	}
}

// An acceptor that dies before it answers is sent everything again.
func TestAcceptorKilled(t *testing.T) {
	t.Parallel()
	for _, point := range []string{beforeStored, afterStored} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			targets(t, func(t *testing.T, target target) {
				n := openNode(t, target, false)
				ids := taskIDs("m", killRounds)
				for round := range killRounds {
					err := order{Role: "accept", Target: target, Point: point, IDs: ids[round:]}.child(t)()
					if !killed(err) {
						t.Fatalf("the child was to be killed %s: %v", point, err)
					}
					rows := n.count(t, `SELECT count(*) FROM inbox_messages`)
					if want := map[string]int{beforeStored: 0, afterStored: round + 1}[point]; rows != want {
						t.Fatalf("round %d: killed %s: %d rows, want %d", round, point, rows, want)
					}
				}
				// Nobody was answered: the sender repeats everything.
				outcomes, err := n.repo.Accept(t.Context(), taskEntries(ids...))
				if err != nil {
					t.Fatal(err)
				}
				want := map[string]inbox.OutcomeKind{beforeStored: inbox.Stored, afterStored: inbox.Duplicate}[point]
				for _, o := range outcomes {
					if o.Kind != want {
						t.Errorf("%s is %v after the repeat, want %v", o.Identity.MessageID, o.Kind, want)
					}
				}
				n.drainAll(t)
				n.expectOnce(t, len(ids))
			})
		})
	}
}
