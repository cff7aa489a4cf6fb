package inboxtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/mediator"
)

var runCases = slices.Concat([]Case{
	{
		Name: "an accept wakes an idle processor of the same process",
		Rule: "A commit of this process is seen at once, not at the next poll.",
		Body: acceptWakes,
	},
	{
		Name: "overlapping accepts are all seen without a poll",
		Rule: "A message that becomes visible after a later one is found soon, however long the poll interval.",
		Body: overlappingAcceptsWake,
	},
	{
		Name: "polling alone is complete",
		Rule: "What another process accepted, or what was added without Committed, is processed all the same.",
		Body: pollingIsComplete,
	},
	{
		Name: "an idle processor does not spin",
		Rule: "With nothing to do it sends a few statements for each poll.",
		Body: idleDoesNotSpin,
	},
	{
		Name: "a retry runs when it is due, without a poll",
		Rule: "A processor looks again when one of its own retries is due.",
		Body: retryWakes,
	},
	{
		Name: "Drain processes what is due and returns how many",
		Rule: "Failures, deaths and messages due later are not counted, and Drain does not wait for them.",
		Body: drainCounts,
	},
	{
		Name: "Drain finds what became visible behind it",
		Rule: "When Drain returns, nothing was due that nobody else had.",
		Body: drainLooksAgain,
	},
	{
		Name: "Run and Drain refuse tables that are missing or newer",
		Rule: "ErrNotMigrated and ErrSchemaNewer, instead of errors of single statements.",
		Body: refusesTables,
	},
}, stopCases, shareCases)

// leakLabel marks the goroutines of a processor under test; they inherit it.
const leakLabel = "inboxtest_processor"

// running is a processor in Run.
type running struct {
	cancel context.CancelFunc
	ended  chan struct{}
	err    error // set when ended is closed
	label  string
}

// start runs p, at the latest until the test ends.
func start(t *testing.T, p *inbox.Processor) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{cancel: cancel, ended: make(chan struct{}), label: fmt.Sprintf("%p", p)}
	go pprof.Do(ctx, pprof.Labels(leakLabel, r.label), func(ctx context.Context) {
		defer close(r.ended)
		r.err = p.Run(ctx)
	})
	t.Cleanup(func() {
		cancel()
		<-r.ended
	})
	return r
}

// result waits for the end of Run, which must leave no goroutine behind.
func (r *running) result(t *testing.T) error {
	t.Helper()
	select {
	case <-r.ended:
		Eventually(t, "the goroutines of Run have ended", func() bool { return goroutines(r.label) == "" })
		return r.err
	case <-time.After(20 * time.Second):
		t.Fatal("Run did not return within 20 s")
		return nil
	}
}

// stop ends Run, which must be clean.
func (r *running) stop(t *testing.T) {
	t.Helper()
	r.cancel()
	if err := r.result(t); err != nil {
		t.Errorf("Run: %v, want nil after a clean stop", err)
	}
}

// goroutines returns the stacks of the goroutines with this label.
func goroutines(label string) string {
	var all bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&all, 1)
	var found []string
	for stack := range strings.SplitSeq(all.String(), "\n\n") {
		if strings.Contains(stack, fmt.Sprintf("%q:%q", leakLabel, label)) {
			found = append(found, stack)
		}
	}
	return strings.Join(found, "\n\n")
}

// processorOn is Processor for another repository than Env's.
func (e *Env) processorOn(t *testing.T, repo *inbox.Repository, config inbox.ProcessorConfig) *inbox.Processor {
	t.Helper()
	config.Requests = mediator.NewRequestMediator(e.Requests)
	if config.Backoff == (inbox.Backoff{}) {
		config.Backoff = inbox.Backoff{Base: time.Millisecond, Max: time.Millisecond}
	}
	p, err := inbox.NewProcessor(repo, config)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// ids returns n job ids.
func ids(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s%04d", prefix, i)
	}
	return all
}

// processed waits until so many messages are.
func (e *Env) processed(t *testing.T, want int) {
	t.Helper()
	Eventually(t, fmt.Sprintf("%d messages are processed", want), func() bool {
		return e.Count(t, `SELECT count(*) FROM inbox_messages WHERE status = 1`) == want
	})
}

// idle waits until a processor on a watched repository has looked once.
func (s *statements) idle(t *testing.T) {
	t.Helper()
	Eventually(t, "the processor has looked", func() bool { return len(s.sent("due <=")) > 0 })
}

func acceptWakes(t *testing.T, e *Env) {
	repo, seen := e.watched(t, inbox.Config{})
	start(t, e.processorOn(t, repo, inbox.ProcessorConfig{PollInterval: time.Hour}))
	for i, id := range ids("job", 5) {
		seen.idle(t)
		if _, err := repo.Accept(t.Context(), e.Entries(id)); err != nil {
			t.Fatal(err)
		}
		e.processed(t, i+1)
	}
}

func overlappingAcceptsWake(t *testing.T, e *Env) {
	if !e.Postgres() {
		t.Skip("PostgreSQL only: SQLite has one writer, so accepts do not overlap")
	}
	// Batches of one are always full, so that the marks stay close behind.
	start(t, e.Processor(t, inbox.ProcessorConfig{PollInterval: time.Hour, BatchSize: 1, Workers: 2}))
	tx, err := e.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	outcomes, err := e.Repo.Add(t.Context(), tx, e.Entries("accepted first, committed last"))
	if err != nil {
		t.Fatal(err)
	}
	later := ids("job", 5)
	e.Accept(t, later...)
	e.processed(t, len(later))
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	e.Repo.Committed(t.Context(), outcomes)
	e.processed(t, len(later)+1)
}

func drainLooksAgain(t *testing.T, e *Env) {
	if !e.Postgres() {
		t.Skip("PostgreSQL only: SQLite has one writer, so accepts do not overlap")
	}
	tx, err := e.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := e.Repo.Add(t.Context(), tx, e.Entries("accepted first, committed last")); err != nil {
		t.Fatal(err)
	}
	e.On("job", func(ctx context.Context, job Job) error {
		return errors.Join(tx.Commit(), e.Effect(ctx, job.ID))
	})
	e.Accept(t, "job")
	if n, err := e.Processor(t, inbox.ProcessorConfig{BatchSize: 1}).Drain(t.Context()); n != 2 || err != nil {
		t.Errorf("Drain: %d, %v, want 2: one became visible behind the other", n, err)
	}
}

func pollingIsComplete(t *testing.T, e *Env) {
	start(t, e.Processor(t, inbox.ProcessorConfig{PollInterval: 50 * time.Millisecond}))
	other := e.NewRepository(t, inbox.Config{})
	if _, err := other.Accept(t.Context(), e.Entries("accepted elsewhere")); err != nil {
		t.Fatal(err)
	}
	e.processed(t, 1)
	tx, err := e.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := e.Repo.Add(t.Context(), tx, e.Entries("added without Committed")); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	e.processed(t, 2)
}

func idleDoesNotSpin(t *testing.T, e *Env) {
	const interval, polls = 100 * time.Millisecond, 15
	repo, seen := e.watched(t, inbox.Config{})
	start(t, e.processorOn(t, repo, inbox.ProcessorConfig{
		PollInterval: interval,
		Workers:      4,
		Names:        map[string]inbox.Policy{"job": {Concurrency: 1}},
	}))
	if _, err := repo.Accept(t.Context(), e.Entries(ids("job", 50)...)); err != nil {
		t.Fatal(err)
	}
	e.processed(t, 50)
	seen.idle(t)
	seen.sent("")
	time.Sleep(polls * interval) // it is the number of statements in a span of time that counts
	sent := seen.sent("")
	// A look is three statements; a poll may come a fifth early, and another
	// worker may look once more.
	if most := 2 * polls * 3; len(sent) < polls/2 || len(sent) > most {
		t.Errorf("%d statements in %d poll intervals, want between %d and %d", len(sent), polls, polls/2, most)
	}
}

func retryWakes(t *testing.T, e *Env) {
	start(t, e.Processor(t, inbox.ProcessorConfig{
		PollInterval: time.Hour,
		Backoff:      inbox.Backoff{Base: 30 * time.Millisecond, Max: 30 * time.Millisecond},
	}))
	e.On("job", func(ctx context.Context, job Job) error {
		if e.Calls(job.ID) <= 3 {
			return errors.New("not yet")
		}
		return e.Effect(ctx, job.ID)
	})
	e.Accept(t, "job")
	e.processed(t, 1)
	e.Expect(t, "job", Processed, 3)
}

func drainCounts(t *testing.T, e *Env) {
	e.On("fails", func(context.Context, Job) error { return inbox.RetryAfter(time.Hour, errors.New("later")) })
	e.On("dies", func(context.Context, Job) error { return inbox.Permanent(errors.New("never")) })
	e.On("is postponed", func(context.Context, Job) error { return inbox.Postpone(time.Hour) })
	e.Accept(t, "one", "fails", "two", "dies", "is postponed", "three")
	later := e.Entries("later")
	later[0].Due = time.Now().Add(time.Hour)
	if _, err := e.Repo.Accept(t.Context(), later); err != nil {
		t.Fatal(err)
	}
	p := e.Processor(t, inbox.ProcessorConfig{})
	for try, want := range []int{3, 0} {
		if n, err := p.Drain(t.Context()); n != want || err != nil {
			t.Errorf("call %d of Drain: %d, %v, want %d", try+1, n, err, want)
		}
	}
	e.Expect(t, "later", Pending, 0)
	e.Expect(t, "fails", Pending, 1)
	e.Expect(t, "dies", Dead, 1)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if n, err := p.Drain(ended); n != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("Drain under a cancelled context: %d, %v", n, err)
	}
}

func refusesTables(t *testing.T, e *Env) {
	repo := e.NewRepository(t, inbox.Config{Prefix: "absent"})
	p := e.processorOn(t, repo, inbox.ProcessorConfig{})
	check := func(want error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := p.Run(ctx); !errors.Is(err, want) {
			t.Errorf("Run: %v, want %v", err, want)
		}
		if _, err := p.Drain(t.Context()); !errors.Is(err, want) {
			t.Errorf("Drain: %v, want %v", err, want)
		}
	}
	check(inbox.ErrNotMigrated)
	if err := repo.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.Exec(t, `INSERT INTO absent_schema (version) VALUES (1000)`)
	check(inbox.ErrSchemaNewer)
	if err := repo.Migrate(t.Context()); !errors.Is(err, inbox.ErrSchemaNewer) {
		t.Errorf("Migrate: %v, want ErrSchemaNewer", err)
	}
	e.Exec(t, `DELETE FROM absent_schema WHERE version = 1000`)
	if _, err := p.Drain(t.Context()); err != nil {
		t.Errorf("Drain: %v", err)
	}
}
