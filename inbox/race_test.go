package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
)

// Eight processors with pools of their own work on 2,000 messages.
func TestEightProcessors(t *testing.T) {
	t.Parallel()
	const processors, messages = 8, 2000
	targets(t, func(t *testing.T, target target) {
		n := openNode(t, target, false)
		for part := range 4 {
			n.accept(t, taskIDs(fmt.Sprint(part, "-"), messages/4)...)
		}
		var mu sync.Mutex
		runs := map[string]int{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var group sync.WaitGroup
		for range processors {
			other := openNode(t, target, true)
			other.after = func(_ context.Context, id string) error {
				mu.Lock()
				defer mu.Unlock()
				runs[id]++
				return nil
			}
			group.Go(func() {
				config := inbox.ProcessorConfig{Workers: 2, PollInterval: 50 * time.Millisecond}
				if err := other.runUntil(ctx, config, messages); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		n.expectOnce(t, messages)
		for id, times := range runs {
			if times != 1 {
				t.Errorf("the handler of %s ran %d times", id, times)
			}
		}
	})
}

// The same with four processes.
func TestFourProcesses(t *testing.T) {
	t.Parallel()
	const processes, messages = 4, 1000
	targets(t, func(t *testing.T, target target) {
		n := openNode(t, target, false)
		n.accept(t, taskIDs("m", messages)...)
		var waits []func() error
		for range processes {
			waits = append(waits, order{Role: "run", Target: target, Batch: 10, Until: messages}.child(t))
		}
		for _, wait := range waits {
			if err := wait(); err != nil {
				t.Error(err)
			}
		}
		n.expectOnce(t, messages)
	})
}

// Eight processes start at once on 200 retries that are due.
func TestProcessesFindDueRetries(t *testing.T) {
	t.Parallel()
	const processes, messages = 8, 200
	targets(t, func(t *testing.T, target target) {
		n := openNode(t, target, false)
		n.accept(t, taskIDs("m", messages)...)
		n.before = func(context.Context, string) error { return inbox.RetryAfter(time.Hour, errors.New("not now")) }
		n.drain(t, n.mustProcessor(t, inbox.ProcessorConfig{}))
		if n.postgres() {
			n.exec(t, `UPDATE inbox_queue SET due = clock_timestamp()`)
		} else {
			n.exec(t, `UPDATE inbox_queue SET due = '2000-01-01T00:00:00.000000Z'`)
		}
		var waits []func() error
		for range processes {
			waits = append(waits, order{Role: "run", Target: target, Until: messages}.child(t))
		}
		for _, wait := range waits {
			if err := wait(); err != nil {
				t.Error(err)
			}
		}
		if got := n.count(t, `SELECT count(*) FROM effects`); got != messages {
			t.Errorf("%d effects of %d retries", got, messages)
		}
		if got := n.count(t, `SELECT count(*) FROM inbox_messages WHERE status = 1 AND attempts = 1`); got != messages {
			t.Errorf("%d messages are processed after one failed attempt, want %d", got, messages)
		}
	})
}

// Four acceptors in processes of their own send the same ids, each in an order
// of its own, while a processor works on them.
func TestAcceptorsRace(t *testing.T) {
	t.Parallel()
	const acceptors, messages = 4, 300
	targets(t, func(t *testing.T, target target) {
		n := openNode(t, target, false)
		ids := taskIDs("m", messages)
		var waits []func() error
		for i := range acceptors {
			turned := append(append([]string{}, ids[i*messages/acceptors:]...), ids[:i*messages/acceptors]...)
			waits = append(waits, order{Role: "accept", Target: target, IDs: turned}.child(t))
		}
		waits = append(waits, order{Role: "run", Target: target, Until: messages}.child(t))
		for _, wait := range waits {
			if err := wait(); err != nil {
				t.Error(err)
			}
		}
		n.expectOnce(t, messages)
	})
}

// Overlapping batches in opposite orders neither deadlock nor store twice.
func TestOverlappingBatchesRace(t *testing.T) {
	t.Parallel()
	const acceptors, rounds, size = 4, 10, 50
	targets(t, func(t *testing.T, target target) {
		n := openNode(t, target, false)
		var mu sync.Mutex
		stored := 0
		for round := range rounds {
			var group sync.WaitGroup
			for i := range acceptors {
				other := openNode(t, target, true)
				entries := taskEntries(taskIDs(fmt.Sprint(round, "-"), size)...)
				if i%2 == 1 {
					for a, b := 0, len(entries)-1; a < b; a, b = a+1, b-1 {
						entries[a], entries[b] = entries[b], entries[a]
					}
				}
				group.Go(func() {
					outcomes, err := other.repo.Accept(t.Context(), entries)
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					for _, o := range outcomes {
						if o.Kind == inbox.Stored {
							stored++
						}
					}
				})
			}
			group.Wait()
		}
		if stored != rounds*size {
			t.Errorf("%d entries were reported as stored, %d are distinct", stored, rounds*size)
		}
		n.drainAll(t)
		n.expectOnce(t, rounds*size)
	})
}
