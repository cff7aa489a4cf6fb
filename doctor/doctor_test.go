package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/doctor"
	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/mediator"
)

type task struct {
	Fail string `json:"fail"`
}

// patient is an inbox of its own.
type patient struct {
	db   *bun.DB
	repo *inbox.Repository
	proc *inbox.Processor
}

// testServer are the findings that every server of a test would have: it does
// not survive a power failure.
var testServer = []string{"fsync-off"}

func open(t *testing.T, db *bun.DB, config inbox.Config) *patient {
	t.Helper()
	names := inbox.NewNameMap()
	inbox.Register[task](names, "task")
	repo, err := inbox.NewRepository(db, names, config)
	if err != nil {
		t.Fatal(err)
	}
	if err := repo.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	requests := mediator.NewRequestMap()
	mediator.BindCommand(requests, func(_ context.Context, task task) error {
		if task.Fail != "" {
			return inbox.Permanent(errors.New(task.Fail))
		}
		return nil
	})
	proc, err := inbox.NewProcessor(repo, inbox.ProcessorConfig{Requests: mediator.NewRequestMediator(requests), Heartbeat: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return &patient{db, repo, proc}
}

func (p *patient) exec(t *testing.T, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := p.db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

func (p *patient) accept(t *testing.T, entries ...inbox.Entry) {
	t.Helper()
	if _, err := p.repo.Accept(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
}

func (p *patient) drain(t *testing.T) {
	t.Helper()
	if _, err := p.proc.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// alive writes the row of a processor that serves the names.
func (p *patient) alive(t *testing.T, names string) {
	t.Helper()
	now, later := "clock_timestamp()", "clock_timestamp() + interval '1 hour'"
	if _, ok := p.sqlite(); ok {
		now, later = "strftime('%Y-%m-%dT%H:%M:%f000Z','now')", "strftime('%Y-%m-%dT%H:%M:%f000Z','now','+1 hour')"
	}
	p.exec(t, fmt.Sprintf(`INSERT INTO inbox_processors (id, host, pid, process, workers, names, started_at, seen_at, lapses_at)
		VALUES ('p', 'host', 1, 'x', 4, '%s', %s, %s, %s)`, names, now, now, later))
}

func (p *patient) sqlite() (*bun.DB, bool) {
	return p.db, strings.Contains(p.db.Dialect().Name().String(), "sqlite")
}

func (p *patient) examine(t *testing.T, config doctor.Config) doctor.Report {
	t.Helper()
	config.Ignore = append(config.Ignore, testServer...)
	report, err := doctor.Examine(t.Context(), p.repo, config)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range report.Findings {
		if f.ID == "unchecked" {
			t.Errorf("not examined: %s: %v", f.Title, f.Evidence)
		}
	}
	return report
}

// illnesses are the findings above Info, as "id severity".
func illnesses(report doctor.Report) []string {
	found := []string{}
	for _, f := range report.Findings {
		if f.Severity > doctor.Info {
			found = append(found, f.ID+" "+f.Severity.String())
		}
	}
	slices.Sort(found)
	return found
}

// finds fails unless exactly the wanted illnesses are found, each with a remedy.
func (p *patient) finds(t *testing.T, config doctor.Config, want ...string) doctor.Report {
	t.Helper()
	report := p.examine(t, config)
	if diff := cmp.Diff(append([]string{}, want...), illnesses(report)); diff != "" {
		t.Errorf("findings (-want +got):\n%s\n%+v", diff, report.Findings)
	}
	for _, f := range report.Findings {
		if f.Severity > doctor.Info && f.Remedy == "" {
			t.Errorf("%s: no remedy", f.ID)
		}
	}
	return report
}

func (p *patient) evidence(t *testing.T, report doctor.Report, id string, parts ...string) {
	t.Helper()
	for _, f := range report.Findings {
		if f.ID != id {
			continue
		}
		all := f.Title + "\n" + strings.Join(f.Evidence, "\n") + "\n" + f.Remedy
		for _, part := range parts {
			if !strings.Contains(all, part) {
				t.Errorf("%s does not say %q:\n%s", id, part, all)
			}
		}
		return
	}
	t.Errorf("no finding %s", id)
}

func raw(id, name, payload, key string) inbox.Entry {
	return inbox.Entry{MessageID: id, OrderingKey: key, Message: inbox.Raw{Name: name, Payload: []byte(payload)}}
}

// everywhere runs a test on both databases.
func everywhere(t *testing.T, test func(t *testing.T, p *patient)) {
	t.Helper()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, open(t, testdb.PGX(t), inbox.Config{}))
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, open(t, testdb.SQLite(t), inbox.Config{}))
	})
}

func TestHealthyInboxHasNoIllness(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, p *patient) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.proc.Run(ctx) }()
		p.accept(t, raw("1", "task", `{}`, ""), raw("2", "task", `{}`, "k"), raw("3", "task", `{}`, "k"))
		eventually(t, func() bool {
			processors, err := p.repo.Processors(t.Context())
			stats, err2 := p.repo.Stats(t.Context())
			return err == nil && err2 == nil && len(processors) == 1 && stats.Pending == 0
		})
		report := p.finds(t, doctor.Config{Workers: 4, BrokerRetention: 24 * time.Hour})
		p.evidence(t, report, "processors", "worker", "1 name")
		p.evidence(t, report, "size", "3 messages stored")
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

func TestQueueIllnesses(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, p *patient) {
		p.accept(t, raw("1", "task", `{"fail":"no such account"}`, "k"), raw("2", "task", `{}`, "k"))
		p.drain(t)
		report := p.finds(t, doctor.Config{}, "dead-messages warning", "parked-keys warning")
		p.evidence(t, report, "dead-messages", `1 of "task"`, "no such account")
		p.evidence(t, report, "parked-keys", `key "k"`, "1 wait behind it", "skip-key")
	})
}

func TestNamesNobodyServes(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, p *patient) {
		names := inbox.NewNameMap()
		inbox.Register[task](names, "foreign")
		acceptor, err := inbox.NewRepository(p.db, names, inbox.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := acceptor.Accept(t.Context(), []inbox.Entry{raw("1", "foreign", `{}`, "")}); err != nil {
			t.Fatal(err)
		}
		report := p.finds(t, doctor.Config{}, "no-processor warning")
		p.evidence(t, report, "no-processor", "foreign")
		p.alive(t, `["task"]`)
		report = p.finds(t, doctor.Config{}, "unserved-names warning")
		p.evidence(t, report, "unserved-names", `"foreign": 1 pending`)
	})
}

func TestLag(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, p *patient) {
		p.alive(t, `["task"]`)
		p.accept(t, raw("1", "task", `{}`, ""))
		p.finds(t, doctor.Config{})
		back := `UPDATE inbox_queue SET due = due - interval '10 minutes'`
		if _, ok := p.sqlite(); ok {
			back = `UPDATE inbox_queue SET due = strftime('%Y-%m-%dT%H:%M:%f000Z','now','-10 minutes')`
		}
		p.exec(t, back)
		report := p.finds(t, doctor.Config{}, "lag warning")
		p.evidence(t, report, "lag", "the oldest due for 10m")
		p.finds(t, doctor.Config{MaxAge: 10 * time.Second}, "lag critical")
		if err := p.repo.Pause(inbox.WithActor(t.Context(), "eve"), "task"); err != nil {
			t.Fatal(err)
		}
		report = p.finds(t, doctor.Config{})
		p.evidence(t, report, "paused-names", `"task" by "eve"`, "1 pending")
	})
}

func TestCrashes(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, p *patient) {
		past := "clock_timestamp() - interval '1 minute'"
		if _, ok := p.sqlite(); ok {
			past = "strftime('%Y-%m-%dT%H:%M:%f000Z','now','-1 minute')"
		}
		for i := range 3 {
			p.exec(t, fmt.Sprintf(`INSERT INTO inbox_processors (id, host, pid, process, workers, names, started_at, seen_at, lapses_at, cautious_until)
				VALUES ('p%d', 'web-1', %d, 'x', 4, '[]', %s, %s, %s, %s)`, i, 100+i, past, past, past, past))
			if i == 0 {
				p.evidence(t, p.finds(t, doctor.Config{}, "crashed-processors warning"), "crashed-processors", `"web-1" pid 100`)
			}
		}
		p.finds(t, doctor.Config{}, "crashed-processors critical")
	})
}

func TestRetentionShorterThanTheBrokers(t *testing.T) {
	t.Parallel()
	p := open(t, testdb.SQLite(t), inbox.Config{Retention: inbox.Retention{DedupeWindow: 48 * time.Hour}})
	report := p.finds(t, doctor.Config{BrokerRetention: 7 * 24 * time.Hour}, "retention critical")
	p.evidence(t, report, "retention", "2.0 days", "7.0 days")
	p.finds(t, doctor.Config{BrokerRetention: 48 * time.Hour})
}

func TestMissingTables(t *testing.T) {
	t.Parallel()
	for name, db := range map[string]*bun.DB{"postgres": testdb.PGX(t), "sqlite": testdb.SQLite(t)} {
		repo, err := inbox.NewRepository(db, inbox.NewNameMap(), inbox.Config{})
		if err != nil {
			t.Fatal(err)
		}
		p := &patient{db: db, repo: repo}
		report := p.finds(t, doctor.Config{}, "schema critical")
		if report.Worst() != doctor.Critical {
			t.Errorf("%s: worst is %v", name, report.Worst())
		}
	}
}

func TestConfigOfTheExamination(t *testing.T) {
	t.Parallel()
	p := open(t, testdb.SQLite(t), inbox.Config{})
	if _, err := doctor.Examine(t.Context(), p.repo, doctor.Config{MaxAge: -1, Workers: -1}); err == nil ||
		!strings.Contains(err.Error(), "MaxAge") || !strings.Contains(err.Error(), "Workers") {
		t.Errorf("a negative setting: %v", err)
	}
	p.accept(t, raw("1", "task", `{"fail":"\u001b[2J<script>"}`, ""))
	p.drain(t)
	report := p.examine(t, doctor.Config{Ignore: []string{"dead-messages"}})
	if got := illnesses(report); len(got) != 0 {
		t.Errorf("ignored, and found: %v", got)
	}
}

func eventually(t *testing.T, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatal("it does not come true")
		}
		time.Sleep(20 * time.Millisecond)
	}
}
