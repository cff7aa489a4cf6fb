package inbox_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
)

// No list reads the whole history, with statistics or without.
func TestListsUseTheirIndexes(t *testing.T) {
	t.Parallel()
	n, sent := recorded(t)
	n.aged(t, 30_000, 10)
	n.exec(t, `UPDATE inbox_messages SET status = 2, processed_at = NULL, last_error = 'boom ' || id % 7 WHERE id % 20 = 0`)
	n.exec(t, `INSERT INTO inbox_queue (id, name, ordering_key, due, state)
		SELECT id, name, ordering_key, now(), 2 FROM inbox_messages WHERE status = 2`)
	n.accept(t, taskIDs("pending", 2000)...)
	id := int64(n.count(t, `SELECT max(id) FROM inbox_messages`))
	for _, statistics := range []string{``, `ANALYZE inbox_messages; ANALYZE inbox_queue`} {
		if statistics != "" {
			n.exec(t, statistics)
		}
		for name, ask := range map[string]func() error{
			"everything":  n.listing(t, inbox.Filter{}),
			"dead":        n.listing(t, inbox.Filter{Status: inbox.Dead}),
			"name":        n.listing(t, inbox.Filter{Status: inbox.Dead, Name: "task"}),
			"error":       n.listing(t, inbox.Filter{ErrorContains: "boom 3"}),
			"pending":     n.listing(t, inbox.Filter{Status: inbox.Pending}),
			"processed":   n.listing(t, inbox.Filter{Status: inbox.Processed, Source: "aged 10"}),
			"message id":  n.listing(t, inbox.Filter{MessageID: "77"}),
			"source, id":  n.listing(t, inbox.Filter{MessageID: "77", Source: "aged 10"}),
			"message":     func() error { _, err := n.repo.Get(t.Context(), id); return err },
			"dead errors": func() error { _, err := n.repo.DeadErrors(t.Context(), 10); return err },
			"parked keys": func() error { _, err := n.repo.ParkedKeys(t.Context(), 10); return err },
			"dry run": func() error {
				_, err := n.repo.RetryAll(t.Context(), inbox.Filter{ErrorContains: "boom 3"}, inbox.RetryAllOptions{DryRun: true})
				return err
			},
			"sweep": func() error { _, err := n.repo.Sweep(t.Context()); return err },
		} {
			sent.all()
			if err := ask(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			settings := ""
			seen := 0
			for _, query := range sent.all() {
				switch {
				case strings.Contains(query.text, "enable_hashjoin"):
					settings = query.text
				case strings.Contains(query.text, `"inbox_messages"`) && strings.Contains(query.text, "SELECT"):
					seen++
					if _, text := n.explain(t, query, settings); scans(text, "inbox_messages") {
						t.Errorf("%s reads all messages:\n%s\n%s", name, query.text, text)
					}
				}
			}
			if seen == 0 {
				t.Errorf("%s: no statement seen", name)
			}
		}
	}
}

func (n *node) listing(t *testing.T, filter inbox.Filter) func() error {
	return func() error {
		summaries, _, err := n.repo.List(t.Context(), filter, inbox.Page{})
		if err == nil && len(summaries) == 0 {
			err = errors.New("nothing found")
		}
		return err
	}
}

// scans reports that a plan reads a whole table.
func scans(plan, table string) bool {
	for node := range strings.SplitSeq(plan, `"Node Type": `) {
		if strings.HasPrefix(node, `"Seq Scan"`) && strings.Contains(node, fmt.Sprintf(`"Relation Name": %q`, table)) {
			return true
		}
	}
	return false
}

// Thousands of dead messages are retried while processors run and others die.
func TestRetryAllWhileProcessorsRun(t *testing.T) {
	t.Parallel()
	targets(t, func(t *testing.T, target target) {
		n := openNode(t, target, false)
		const count = 3000
		for chunk := 0; chunk < count; chunk += 1000 {
			n.accept(t, taskIDs(fmt.Sprintf("m%d-", chunk), 1000)...)
		}
		n.exec(t, `UPDATE inbox_messages SET status = 2, attempts = 5, last_error = 'boom'`)
		n.exec(t, `UPDATE inbox_queue SET state = 2, attempts = 5`)
		done := make(chan error, 1)
		go func() {
			done <- n.runUntil(t.Context(), inbox.ProcessorConfig{Workers: 2, PollInterval: 20 * time.Millisecond}, count)
		}()
		var steps []int64
		retried, err := n.repo.RetryAll(t.Context(), inbox.Filter{}, inbox.RetryAllOptions{Progress: func(n int64) { steps = append(steps, n) }})
		if err != nil || retried != count || len(steps) != count/500 {
			t.Errorf("%d retried in steps %v, %v", retried, steps, err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if twice := n.count(t, `SELECT count(*) - count(DISTINCT job) FROM effects`); twice != 0 {
			t.Errorf("%d effects too many", twice)
		}
		if left := n.count(t, `SELECT count(*) FROM inbox_queue`); left != 0 {
			t.Errorf("%d messages are left", left)
		}
	})
}
