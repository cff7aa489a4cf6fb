package inboxtest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/letterbox-go/letterbox/inbox"
)

var carefulCases = []Case{
	{
		Name: "after a crash messages are started one at a time",
		Rule: "While processors are careful, one handler runs per process, and everything is processed once.",
		Body: oneAtATime,
	},
	{
		Name: "a stop while being careful blames nobody",
		Rule: "A message that was at work when its processor was stopped is claimable at once, and its start is forgotten.",
		Body: carefulStop,
	},
	{
		Name: "failures while being careful are recorded as ever",
		Rule: "Attempts, deaths and postponements do not depend on it, and forget the start.",
		Body: carefulFailures,
	},
}

// crashed makes processors careful: somebody's row has lapsed.
func (e *Env) crashed(t *testing.T) {
	t.Helper()
	e.Exec(t, `INSERT INTO inbox_processors (id, host, pid, process, workers, names, started_at, seen_at, lapses_at)
		VALUES ('crashed', 'elsewhere', 1, 'p', 1, '[]', '2000-01-01T00:00:00.000000Z', '2000-01-01T00:00:00.000000Z', '2000-01-01T00:00:00.000000Z')`)
}

func oneAtATime(t *testing.T, e *Env) {
	e.crashed(t)
	var mu sync.Mutex
	running, most := 0, 0
	jobs := ids("job", 20)
	for _, id := range jobs {
		e.On(id, func(ctx context.Context, job Job) error {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			defer func() {
				mu.Lock()
				running--
				mu.Unlock()
			}()
			if n := e.Count(t, `SELECT count(*) FROM inbox_queue WHERE starts > 0`); n != 1 && e.Postgres() {
				t.Errorf("%d messages are noted as started", n)
			}
			return e.Effect(ctx, job.ID)
		})
	}
	e.Accept(t, jobs...)
	start(t, e.Processor(t, inbox.ProcessorConfig{Workers: 4}))
	e.processed(t, len(jobs))
	if most != 1 {
		t.Errorf("%d handlers ran at once", most)
	}
}

func carefulStop(t *testing.T, e *Env) {
	e.crashed(t)
	entered, release := e.blocked("slow")
	defer close(release)
	e.Accept(t, "slow")
	r := start(t, e.Processor(t, inbox.ProcessorConfig{Workers: 1, ShutdownGrace: -1}))
	<-entered
	r.stop(t)
	if n := e.Count(t, `SELECT count(*) FROM inbox_queue WHERE starts <> 0`); n != 0 {
		t.Errorf("%d messages are still noted as started", n)
	}
	e.claimableAtOnce(t, "slow")
}

func carefulFailures(t *testing.T, e *Env) {
	e.crashed(t)
	e.On("fails", func(context.Context, Job) error { return errors.New("no") })
	e.On("dies", func(context.Context, Job) error { return inbox.Permanent(errors.New("never")) })
	e.On("waits", func(context.Context, Job) error { return inbox.Postpone(later.Max) })
	e.Accept(t, "fails", "dies", "waits", "works")
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{Backoff: later}))
	e.Expect(t, "fails", Pending, 1)
	e.Expect(t, "dies", Dead, 1)
	e.Expect(t, "waits", Pending, 0)
	e.Expect(t, "works", Processed, 0)
	if n := e.Count(t, `SELECT count(*) FROM inbox_queue WHERE starts <> 0`); n != 0 {
		t.Errorf("%d messages are still noted as started", n)
	}
}
