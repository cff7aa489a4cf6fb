package inboxtest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
)

// dispatchCases are the rules between the claim of a message and the record of
// its fate.
var dispatchCases = slices.Concat(outcomeCases, faultCases, deadlineCases, refusalCases, nestedCases, handleCases, sqlCases, connectionCases)

// later is a backoff whose retries no test sees.
var later = inbox.Backoff{Base: 50_000 * time.Hour, Max: 50_000 * time.Hour}

// faulty is a job that must fail, and how.
type faulty struct {
	id   string
	do   func(ctx context.Context, job Job) error
	text string // part of the error that is kept
	runs int    // how often its handler may run at most. Default 2
}

// among runs faulty jobs between healthy ones, all of them in one batch. Each
// faulty one has to be charged one attempt and leave nothing behind; the
// healthy ones are processed without a charge.
func (e *Env) among(t *testing.T, config inbox.ProcessorConfig, jobs ...faulty) {
	t.Helper()
	if config.Backoff == (inbox.Backoff{}) {
		config.Backoff = later
	}
	ids, healthy := []string{"healthy first"}, []string{"healthy first"}
	for _, job := range jobs {
		e.On(job.id, job.do)
		ids = append(ids, job.id, "healthy after "+job.id)
		healthy = append(healthy, "healthy after "+job.id)
	}
	e.Accept(t, ids...)
	e.Drain(t, e.Processor(t, config))
	effects := e.Effects(t)
	for _, id := range healthy {
		e.Expect(t, id, Processed, 0)
		if effects[id] != 1 {
			t.Errorf("%s has %d effects", id, effects[id])
		}
	}
	for _, job := range jobs {
		row := e.Expect(t, job.id, Pending, 1)
		if !strings.Contains(row.LastError, job.text) {
			t.Errorf("%s: the error says %q, want %q in it", job.id, row.LastError, job.text)
		}
		if row.Interruptions != 0 {
			t.Errorf("%s: %d interruptions", job.id, row.Interruptions)
		}
		if effects[job.id] != 0 {
			t.Errorf("%s failed and has %d effects", job.id, effects[job.id])
		}
		if runs := e.Calls(job.id); runs > max(job.runs, 2) {
			t.Errorf("%s ran %d times", job.id, runs)
		}
	}
}

// sql runs a statement in the transaction of the handler.
func (e *Env) sql(ctx context.Context, query string, args ...any) error {
	_, err := inbox.DB(ctx, e.DB).ExecContext(ctx, query, args...)
	return err
}

// finish processes until nothing is pending, retries that become due included.
func (e *Env) finish(t *testing.T, p *inbox.Processor) {
	t.Helper()
	Eventually(t, "nothing is pending", func() bool {
		e.Drain(t, p)
		stats, err := e.Repo.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return stats.Pending == 0
	})
}
