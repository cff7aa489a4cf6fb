package inbox_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

// With pgx's option the statement that stores messages is prepared once, and
// does what it does without.
func TestDriverArgsPrepareTheAccept(t *testing.T) {
	t.Parallel()
	n := openNode(t, target{"pgx", testdb.Postgres(t)}, false)
	n.db.SetMaxOpenConns(1)
	repo, err := inbox.NewRepository(n.db, n.names, inbox.Config{DriverArgs: []any{pgx.QueryExecModeCacheStatement}})
	if err != nil {
		t.Fatal(err)
	}
	n.repo = repo
	kinds := func(ids ...string) (all []string) {
		t.Helper()
		entries := taskEntries(ids...)
		for i := range entries {
			entries[i].OrderingKey = `a "key" with \ and ,{}`
			entries[i].Metadata = map[string]string{"quote": `"\'`}
		}
		outcomes, err := repo.Accept(t.Context(), entries)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range outcomes {
			all = append(all, o.Kind.String())
		}
		return all
	}
	for range 8 { // PostgreSQL may change to a generic plan after five
		id := inbox.NewMessageID()
		got := append(kinds(id), kinds(id)...)
		got = append(got, kinds(id, id+"b", id+"b", id+"c")...)
		if diff := cmp.Diff([]string{"stored", "duplicate", "duplicate", "stored", "duplicate", "stored"}, got); diff != "" {
			t.Error(diff)
		}
	}
	if got := n.count(t, `SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%INSERT INTO "inbox_messages"%'`); got < 2 || got > 4 {
		t.Errorf("%d statements are prepared, want one per form", got)
	}
	n.drainAll(t)
	n.expectOnce(t, 24)
}

// PostgreSQL keeps the plan of a prepared statement. One that was made for an
// empty queue and a short history must not be used when they have grown.
func TestPlansAreNotKeptAsTablesGrow(t *testing.T) {
	t.Parallel()
	const grown, turns = 20_000, 10
	n := openNode(t, target{"pgx", testdb.Postgres(t)}, false)
	working, err := n.target.open()
	if err != nil {
		t.Fatal(err)
	}
	defer working.Close()
	working.SetMaxOpenConns(1)
	busy := &node{db: working, names: n.names, requests: n.requests, target: n.target}
	repo, err := inbox.NewRepository(working, n.names, inbox.Config{DriverArgs: []any{pgx.QueryExecModeCacheStatement}})
	if err != nil {
		t.Fatal(err)
	}
	busy.repo = repo
	p := busy.mustProcessor(t, inbox.ProcessorConfig{BatchSize: 4})
	turn := func(prefix string) {
		t.Helper()
		for i := range turns {
			id := fmt.Sprint(prefix, i)
			busy.accept(t, id+"a")
			busy.accept(t, id+"b", id+"c")
			entries := taskEntries(id+"d", id+"e")
			entries[0].OrderingKey, entries[1].OrderingKey = id, id
			if _, err := repo.Accept(t.Context(), entries); err != nil {
				t.Fatal(err)
			}
			if got := busy.drain(t, p); got != 5 {
				t.Fatalf("%d processed, want 5", got)
			}
		}
	}
	for _, table := range []string{"inbox_queue", "inbox_messages"} {
		n.exec(t, `ALTER TABLE `+table+` SET (autovacuum_enabled = off)`)
	}
	n.accept(t, "first")
	n.drainAll(t)
	n.exec(t, `VACUUM ANALYZE inbox_queue, inbox_messages`)
	turn("small")
	small := busy.keptPlans(t)

	n.exec(t, `INSERT INTO inbox_messages (id, source, message_id, name, ordering_key, payload, metadata, status, received_at)
		SELECT i, '', 'grown' || i, 'task', 'k' || i, '{}', '', 0, clock_timestamp() FROM generate_series(1000001, 1000000 + ?) i`, grown)
	n.exec(t, `INSERT INTO inbox_queue (id, name, ordering_key, due)
		SELECT i, 'task', 'k' || i, clock_timestamp() + interval '1 day' FROM generate_series(1000001, 1000000 + ?) i`, grown)
	time.Sleep(1100 * time.Millisecond) // the sizes are looked up once a second
	turn("noticed")

	scan := regexp.MustCompile(`Seq Scan on inbox_(queue|messages)`)
	stale, fresh := 0, 0
	for name, text := range busy.keptPlans(t) {
		if _, old := small[name]; old && scan.MatchString(text) {
			stale++
		} else if !old {
			fresh++
			if scan.MatchString(text) {
				t.Errorf("made after the tables had grown:\n%s", text)
			}
		}
	}
	if stale == 0 {
		t.Error("no plan for the small tables reads them whole: this test shows nothing")
	}
	if fresh < 7 {
		t.Errorf("%d new plans, want one per statement", fresh)
	}
}

// keptPlans returns the plans that the one session of the node keeps for prepared
// statements on the inbox's tables.
func (n *node) keptPlans(t *testing.T) map[string]string {
	t.Helper()
	n.exec(t, `SET plan_cache_mode = force_generic_plan`) // or EXPLAIN would make another
	defer n.exec(t, `RESET plan_cache_mode`)
	var statements []struct {
		Name       string
		Parameters int
	}
	err := n.db.NewRaw(`SELECT name, cardinality(parameter_types) AS parameters FROM pg_prepared_statements
		WHERE statement LIKE '%"inbox_queue"%' AND statement NOT LIKE '%pg_relation_size%'`).Scan(t.Context(), &statements)
	if err != nil {
		t.Fatal(err)
	}
	plans := map[string]string{}
	for _, s := range statements {
		var lines []string
		query := "EXPLAIN EXECUTE " + s.Name
		if s.Parameters > 0 {
			query += "(NULL" + strings.Repeat(", NULL", s.Parameters-1) + ")"
		}
		if err := n.db.NewRaw(query).Scan(t.Context(), &lines); err != nil {
			t.Fatal(err)
		}
		plans[s.Name] = strings.Join(lines, "\n")
	}
	return plans
}

// PostgreSQL plans a prepared statement anew at each execution as long as a plan
// for the arguments in hand looks cheaper than one for any: that costs more than
// a claim itself. None of ours may look so, whatever it is given.
func TestPlansAreKept(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 2, 8, 32} {
		for _, key := range []string{"", "key"} {
			t.Run(fmt.Sprintf("%d%s", size, key), func(t *testing.T) { keepsPlans(t, size, key) })
		}
	}
}

// keepsPlans accepts and processes size messages at a time.
func keepsPlans(t *testing.T, size int, key string) {
	n := openNode(t, target{"pgx", testdb.Postgres(t)}, false)
	n.db.SetMaxOpenConns(1)
	repo, err := inbox.NewRepository(n.db, n.names, inbox.Config{DriverArgs: []any{pgx.QueryExecModeCacheStatement}})
	if err != nil {
		t.Fatal(err)
	}
	n.repo = repo
	n.exec(t, `INSERT INTO inbox_messages (id, source, message_id, name, ordering_key, payload, metadata, status, received_at, processed_at)
		SELECT i, '', 'old' || i, 'task', '', '{}', '', 1, clock_timestamp(), clock_timestamp() FROM generate_series(1000001, 1005000) i`)
	n.exec(t, `ANALYZE`)
	p := n.mustProcessor(t, inbox.ProcessorConfig{BatchSize: 32})
	const turns = 12
	for turn := range turns {
		ids := make([]string, size)
		for i := range ids {
			ids[i] = fmt.Sprint(turn, "-", i)
		}
		entries := taskEntries(ids...)
		for i := range entries {
			entries[i].OrderingKey = key
		}
		if _, err := repo.Accept(t.Context(), entries); err != nil {
			t.Fatal(err)
		}
		if got := n.drain(t, p); got != size {
			t.Fatalf("%d processed, want %d", got, size)
		}
	}
	var statements []struct {
		Statement string
		Generic   int
		Custom    int
	}
	err = n.db.NewRaw(`SELECT statement, generic_plans AS generic, custom_plans AS custom FROM pg_prepared_statements
		WHERE statement LIKE '%inbox_queue%' AND generic_plans + custom_plans >= ?`, turns-2).Scan(t.Context(), &statements)
	if err != nil {
		t.Fatal(err)
	}
	want := 3 // accept, claim, settle
	if key != "" {
		want += 3 // what is earlier, the lock, unpark
	}
	if len(statements) < want {
		t.Errorf("%d statements, want %d at least", len(statements), want)
	}
	for _, s := range statements {
		if s.Custom > turns/2 { // five, and one when the statistics change
			t.Errorf("planned %d times, and the plan kept %d times:\n%s", s.Custom, s.Generic, s.Statement)
		}
	}
}
