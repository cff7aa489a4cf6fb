package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/mediator"
)

// plannerSettings make the planner do what it would not do by itself.
var plannerSettings = []string{
	`SET LOCAL enable_seqscan = on`,
	`SET LOCAL enable_indexscan = off; SET LOCAL enable_indexonlyscan = off; SET LOCAL enable_bitmapscan = off`,
	`SET LOCAL enable_seqscan = off`,
	`SET LOCAL enable_sort = off; SET LOCAL enable_incremental_sort = off`,
	`SET LOCAL enable_nestloop = off`,
	`SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off`,
	`SET LOCAL enable_material = off`,
	`SET LOCAL plan_cache_mode = force_generic_plan`,
	`SET LOCAL cpu_operator_cost = 1000; SET LOCAL random_page_cost = 1000`,
}

// A claim never locks more than it returns, whatever the planner thinks.
func TestClaimLocksNoMore(t *testing.T) {
	t.Parallel()
	const messages = 60
	n := openNode(t, target{"pgx", testdb.Postgres(t)}, false)
	n.bindOther()
	n.exec(t, `ALTER TABLE inbox_queue SET (autovacuum_enabled = off)`)
	n.exec(t, `ALTER TABLE inbox_messages SET (autovacuum_enabled = off)`)
	entries := taskEntries(taskIDs("m", messages)...)
	for i := range entries {
		entries[i].Message = inbox.Raw{Name: []string{"task", "other"}[i%2], Payload: []byte(`{}`)}
	}
	if _, err := n.repo.Accept(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
	for _, settings := range plannerSettings {
		n.locksNoMore(t, messages, settings)
	}
	n.exec(t, `ANALYZE inbox_queue, inbox_messages`)
	for _, settings := range plannerSettings {
		n.locksNoMore(t, messages, settings)
	}
}

func (n *node) locksNoMore(t *testing.T, messages int, settings string) {
	t.Helper()
	const limit = 7
	tx, err := n.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	for setting := range strings.SplitSeq(settings, "; ") {
		if _, err := tx.Exec(setting); err != nil {
			t.Fatal(err)
		}
	}
	claimed, err := n.repo.GetMany(t.Context(), tx, limit)
	if err != nil || len(claimed) != limit {
		t.Fatalf("%s: %d claimed, %v, want %d", settings, len(claimed), err, limit)
	}
	free := n.count(t, `SELECT count(*) FROM (SELECT FROM inbox_queue FOR UPDATE SKIP LOCKED) free`)
	if locked := messages - free; locked != limit {
		t.Errorf("%s: %d rows are locked, %d were claimed", settings, locked, limit)
	}
	for i := 1; i < len(claimed); i++ {
		if claimed[i].ID < claimed[i-1].ID {
			t.Errorf("%s: %d comes before %d", settings, claimed[i-1].ID, claimed[i].ID)
		}
	}
}

// bindOther gives the node a handler for a second name.
func (n *node) bindOther() {
	type other struct{ task }
	inbox.Register[other](n.names, "other")
	mediator.BindCommand(n.requests, func(context.Context, other) error { return nil })
}

// plan is what EXPLAIN (FORMAT JSON) says of a node.
type plan struct {
	Type      string  `json:"Node Type"`
	Relation  string  `json:"Relation Name"`
	Index     string  `json:"Index Name"`
	IndexCond string  `json:"Index Cond"`
	Filter    string  `json:"Filter"`
	Hit       int     `json:"Shared Hit Blocks"`
	Read      int     `json:"Shared Read Blocks"`
	Rows      float64 `json:"Actual Rows"`
	Plans     []plan  `json:"Plans"`
}

func (p plan) walk(visit func(plan)) {
	visit(p)
	for _, child := range p.Plans {
		child.walk(visit)
	}
}

// crowd puts rows that no claim of "task" may touch before 10 fresh ones.
func (n *node) crowd(t *testing.T) {
	t.Helper()
	fill := func(from, to int, name, due string, state int) {
		n.exec(t, `INSERT INTO inbox_messages (id, source, message_id, name, ordering_key, payload, metadata, status, received_at)
			SELECT i, '', 'crowd' || i, ?, '', '{"id":"crowd"}', '', ?, clock_timestamp() FROM generate_series(?, ?) i`, name, state, from, to)
		n.exec(t, `INSERT INTO inbox_queue (id, name, ordering_key, due, state)
			SELECT i, ?, '', `+due+`, ? FROM generate_series(?, ?) i`, name, state, from, to)
	}
	fill(1_000_001, 1_100_000, "task", `clock_timestamp() - interval '1 day' + i * interval '1 microsecond'`, 2)
	fill(2_000_001, 2_100_000, "task", `clock_timestamp() + interval '1 day' + i * interval '1 microsecond'`, 0)
	fill(3_000_001, 3_050_000, "foreign", `clock_timestamp() - interval '1 day' + i * interval '1 microsecond'`, 0)
	// The history, which no claim reads.
	n.exec(t, `INSERT INTO inbox_messages (id, source, message_id, name, ordering_key, metadata, status, received_at, processed_at)
		SELECT i, '', 'done' || i, 'task', '', '', 1, clock_timestamp(), clock_timestamp() FROM generate_series(4000001, 5000000) i`)
	n.accept(t, taskIDs("fresh", 10)...)
}

// A million processed rows, 100,000 dead rows, 100,000 due later and 50,000 of a foreign name, all older
// than 10 fresh ones, cost a claim nothing.
func TestHotStatementsUseTheirIndexes(t *testing.T) {
	t.Parallel()
	n, sent := recorded(t)
	n.crowd(t)
	n.exec(t, `VACUUM ANALYZE inbox_queue, inbox_messages`)
	// After its write, so that its batch is run again one by one.
	n.after = func(_ context.Context, id string) error {
		if id == "fresh00003" {
			return errors.New("on purpose")
		}
		return nil
	}
	config := inbox.ProcessorConfig{BatchSize: 4, Backoff: inbox.Backoff{Base: time.Hour, Max: time.Hour}}
	n.drain(t, n.mustProcessor(t, config))
	if got := n.count(t, `SELECT count(*) FROM effects`); got != 9 {
		t.Fatalf("%d effects, want 9", got)
	}
	claim := sent.last(t, "CROSS JOIN LATERAL")
	statements := map[string]statement{
		"claim":     claim,
		"claim one": sent.last(t, "q\n\tWHERE q.id = $1"),
		"processed": sent.last(t, "WITH done AS"),
		"failed":    sent.last(t, "new_interruptions"),
		"add":       sent.last(t, "nextval"),
	}
	n.accept(t, taskIDs("again", 10)...)
	n.accept(t, "one")
	statements["add one"] = sent.last(t, "RETURNING id::text")
	n.makeLive(t, statements)
	for name, statement := range statements {
		for _, settings := range [][]string{nil, {`SET LOCAL plan_cache_mode = force_generic_plan`}} {
			p, text := n.explain(t, statement, settings...)
			buffers := p.Hit + p.Read
			if buffers == 0 {
				t.Errorf("%s does nothing:\n%s\n%s", name, statement.text, text)
			}
			p.walk(func(node plan) {
				if node.Type == "Seq Scan" && strings.HasPrefix(node.Relation, "inbox_") {
					t.Errorf("%s: sequential scan of %s:\n%s", name, node.Relation, text)
				}
				if name == "claim" && node.Relation == "inbox_queue" {
					checkClaimScan(t, node)
				}
			})
			// 10 rows and their messages: a few pages each.
			if buffers > 300 {
				t.Errorf("%s touches %d buffers:\n%s", name, buffers, text)
			}
			t.Logf("%s: %d buffers", name, buffers)
		}
	}
	p, text := n.explain(t, claim)
	if p.Rows == 0 {
		t.Errorf("the claim that is looked at finds nothing:\n%s", text)
	}
}

// makeLive points the recorded statements at messages that are pending, and
// drops the check of the transaction, which is long gone.
func (n *node) makeLive(t *testing.T, statements map[string]statement) {
	t.Helper()
	var ids []int64
	if err := n.db.NewRaw(`SELECT id FROM inbox_messages WHERE message_id LIKE 'again%'`).Scan(t.Context(), &ids); err != nil || len(ids) != 10 {
		t.Fatalf("ids %v, %v", ids, err)
	}
	array := "{" + strings.Trim(strings.ReplaceAll(fmt.Sprint(ids), " ", ","), "[]") + "}"
	processed := statements["processed"]
	processed.text = strings.ReplaceAll(processed.text, "pg_current_xact_id_if_assigned()::text = $2::text", "$2::text <> ''")
	processed.args = []string{array, "0", "10"}
	statements["processed"] = processed

	own := regexp.MustCompile(`pg_current_xact_id_if_assigned\(\)::text = '\d+'`)
	several := regexp.MustCompile(`'\{[0-9,]+\}'::bigint\[\]`)
	failed := statements["failed"]
	one := several.FindStringIndex(failed.text)
	if one == nil {
		t.Fatalf("no ids in %s", failed.text)
	}
	failed.text = own.ReplaceAllString(failed.text[:one[0]]+fmt.Sprintf("'{%d}'::bigint[]", ids[0])+failed.text[one[1]:], "true")
	statements["failed"] = failed

	fresh := func(name string) {
		s := statements[name]
		s.args = slices.Clone(s.args)
		for i := range s.args {
			s.args[i] = strings.NewReplacer("fresh0000", "newer0000", "one", "newest").Replace(s.args[i])
		}
		statements[name] = s
	}
	fresh("add")
	fresh("add one")
	statements["claim one"] = statement{statements["claim one"].text, []string{fmt.Sprint(ids[0]), "0"}}
}

// checkClaimScan fails unless the time is part of the index condition.
func checkClaimScan(t *testing.T, node plan) {
	t.Helper()
	if node.Index != "inbox_queue_claim" && node.Type != "LockRows" {
		t.Errorf("the queue is read by %s on %q", node.Type, node.Index)
	}
	if !strings.Contains(node.IndexCond, "due <= statement_timestamp()") || strings.Contains(node.Filter, "due") {
		t.Errorf("the time is not an index condition: condition %q, filter %q", node.IndexCond, node.Filter)
	}
}

// The hot statements carry no time of this process, so that a clock which is
// off or steps back decides nothing.
func TestDatabaseClockDecides(t *testing.T) {
	t.Parallel()
	n, sent := recorded(t)
	n.before = func(_ context.Context, id string) error {
		if id == "fails" {
			return inbox.RetryAfter(time.Minute, errors.New("on purpose"))
		}
		return nil
	}
	n.accept(t, "ok", "fails")
	n.drain(t, n.mustProcessor(t, inbox.ProcessorConfig{BatchSize: 1}))
	literal := regexp.MustCompile(`['{"]?\d{4}-\d\d-\d\d[ T]`)
	if claim := sent.last(t, "CROSS JOIN LATERAL"); !strings.Contains(claim.text, "q.due <= statement_timestamp()") {
		t.Errorf("the claim does not ask the database for the time:\n%s", claim.text)
	}
	for _, s := range sent.all() {
		// The low-water mark came from the database itself.
		if strings.Contains(s.text, "CROSS JOIN LATERAL") || strings.HasPrefix(s.text, "INSERT INTO effects") {
			continue
		}
		for _, text := range append(s.args, s.text) {
			if literal.MatchString(text) {
				t.Errorf("a time of this process is in\n%s\n%s", s.text, text)
			}
		}
	}
	delay := n.count(t, `SELECT EXTRACT(epoch FROM due - clock_timestamp())::int FROM inbox_queue`)
	if delay < 50 || delay > 60 {
		t.Errorf("a retry after 60 s is due in %d s by the database's clock", delay)
	}
}

// A test may bring its own clock, on both databases.
func TestFakeClock(t *testing.T) {
	t.Parallel()
	targets(t, func(t *testing.T, target target) {
		var mu sync.Mutex
		now := time.Date(2031, 2, 3, 4, 5, 6, 7000, time.UTC)
		advance := func(d time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			now = now.Add(d)
		}
		n := openNode(t, target, false)
		repo, err := inbox.NewRepository(n.db, n.names, inbox.Config{Clock: func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return now.In(time.FixedZone("elsewhere", -3*3600))
		}})
		if err != nil {
			t.Fatal(err)
		}
		n.repo = repo
		fail := true
		n.before = func(context.Context, string) error {
			if fail {
				return inbox.RetryAfter(time.Hour, errors.New("not yet"))
			}
			return nil
		}
		entries := taskEntries("now", "later")
		entries[1].Due = now.Add(2 * time.Hour)
		if _, err := repo.Accept(t.Context(), entries); err != nil {
			t.Fatal(err)
		}
		p := n.mustProcessor(t, inbox.ProcessorConfig{})
		for _, step := range []struct {
			advance time.Duration
			want    int
		}{{0, 0}, {time.Hour - time.Second, 0}, {time.Second, 1}, {time.Hour - time.Second, 0}, {time.Second, 1}} {
			advance(step.advance)
			if got := n.drain(t, p); got != step.want {
				t.Errorf("after %v more: %d processed, want %d", step.advance, got, step.want)
			}
			fail = false
		}
		n.exec(t, `DELETE FROM inbox_queue`)
	})
}
