package inbox_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// crashHeartbeat is short, since a message that was at work in a crash comes back
// a heartbeat later.
const crashHeartbeat = 50 * time.Millisecond

// A message that kills its process is dead after a bounded number of crashes,
// and nobody else is blamed.
func TestMessageThatKillsItsProcess(t *testing.T) {
	t.Parallel()
	targets(t, func(t *testing.T, target target) {
		n := openNode(t, target, false)
		neighbours := append(taskIDs("before", 5), taskIDs("after", 5)...)
		n.accept(t, neighbours[:5]...)
		n.accept(t, "poison")
		n.accept(t, neighbours[5:]...)

		crashes := 0
		eventually(t, "the poison is dead", 30*time.Second, func() bool {
			err := order{Role: "drain", Target: target, Point: atPoison, Heartbeat: crashHeartbeat}.child(t)()
			if killed(err) {
				crashes++
			} else if err != nil {
				t.Fatal(err)
			}
			return n.count(t, `SELECT count(*) FROM inbox_messages WHERE message_id = 'poison' AND status = 2`) == 1
		})
		if crashes < 2 || crashes > 10 {
			t.Errorf("it took %d crashes", crashes)
		}
		var text string
		if err := n.db.NewRaw(`SELECT last_error FROM inbox_messages WHERE message_id = 'poison'`).Scan(t.Context(), &text); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text, "worker died") {
			t.Errorf("the error of the dead message says %q", text)
		}
		for what, query := range map[string]string{
			"processed messages":   `SELECT count(*) FROM inbox_messages WHERE status = 1 AND attempts = 0 AND last_error = ''`,
			"effects":              `SELECT count(*) FROM effects`,
			"different effects":    `SELECT count(DISTINCT job) FROM effects`,
			"messages not started": `SELECT count(*) + 10 FROM inbox_queue WHERE state = 0`,
		} {
			if got := n.count(t, query); got != len(neighbours) {
				t.Errorf("%d %s, want %d", got, what, len(neighbours))
			}
		}
	})
}

// SIGKILL of a process that does its work is nobody's fault.
func TestKilledDeploysBlameNobody(t *testing.T) {
	t.Parallel()
	targets(t, func(t *testing.T, target target) {
		n := openNode(t, target, false)
		const messages = 40
		n.accept(t, taskIDs("m", messages)...)
		for range 12 {
			err := order{Role: "drain", Target: target, Point: atThird, Heartbeat: crashHeartbeat}.child(t)()
			if err != nil && !killed(err) {
				t.Fatal(err)
			}
		}
		n.drainAll(t)
		n.expectOnce(t, messages)
	})
}

// A processor that stops cleanly leaves no row behind and makes nobody careful;
// one that dies does, and its successor notices at once.
func TestProcessorRows(t *testing.T) {
	t.Parallel()
	targets(t, func(t *testing.T, target target) {
		n := openNode(t, target, false)
		rows := func() string {
			return fmt.Sprint(
				n.count(t, `SELECT count(*) FROM inbox_processors`),
				n.count(t, `SELECT count(*) FROM inbox_processors WHERE cautious_until IS NOT NULL`))
		}
		n.accept(t, taskIDs("clean", 3)...)
		if err := (order{Role: "drain", Target: target}).child(t)(); err != nil {
			t.Fatal(err)
		}
		if got := rows(); got != "0 0" {
			t.Errorf("after a clean stop: %s rows, noticed crashes", got)
		}
		n.accept(t, "poison")
		if err := (order{Role: "drain", Target: target, Point: atPoison}).child(t)(); !killed(err) {
			t.Fatalf("the child was to be killed: %v", err)
		}
		if got := rows(); got != "1 0" {
			t.Errorf("after a crash: %s rows, noticed crashes", got)
		}
		n.drainAll(t)
		if got := rows(); got != "1 1" {
			t.Errorf("after its successor has started: %s rows, noticed crashes", got)
		}
	})
}
