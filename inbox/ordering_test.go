package inbox_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

// However many messages wait behind one that is dead, other claims cost what
// they cost without them, and so does the look for earlier messages.
func TestBlockedKeyCostsOthersNothing(t *testing.T) {
	t.Parallel()
	const followers = 50_000
	n, sent := recorded(t)
	p := n.mustProcessor(t, inbox.ProcessorConfig{BatchSize: 32, Workers: 1})
	claim := func(prefix string) int {
		t.Helper()
		n.accept(t, taskIDs(prefix, 10)...)
		if got := n.drain(t, p); got != 10 {
			t.Fatalf("%d processed, want 10", got)
		}
		n.accept(t, taskIDs(prefix+"again", 10)...)
		plan, _ := n.explain(t, sent.last(t, "q.name = n.name"))
		n.drain(t, p)
		return plan.Hit + plan.Read
	}
	alone := claim("alone")

	n.exec(t, `INSERT INTO inbox_messages (id, source, message_id, name, ordering_key, payload, metadata, status, received_at)
		SELECT i, '', 'hot' || i, 'task', 'hot', '{"id":"hot"}', '', CASE WHEN i = 1000000 THEN 2 ELSE 0 END, clock_timestamp()
		FROM generate_series(1000000, 1000000 + ?) i`, followers)
	n.exec(t, `INSERT INTO inbox_queue (id, name, ordering_key, due, state)
		SELECT i, 'task', 'hot', clock_timestamp() - interval '1 day' + (i - 1000000) * interval '1 microsecond', CASE WHEN i = 1000000 THEN 2 ELSE 0 END
		FROM generate_series(1000000, 1000000 + ?) i`, followers)
	if got := n.drain(t, p); got != 0 {
		t.Fatalf("%d of a blocked key were processed", got)
	}
	if left := n.count(t, `SELECT count(*) FROM inbox_queue WHERE state = 0`); left != 0 {
		t.Errorf("%d followers are still in the way of claims", left)
	}
	n.exec(t, `VACUUM ANALYZE inbox_queue`)
	behind := claim("behind")
	t.Logf("a claim of 10: %d buffers alone, %d behind %d messages of a blocked key", alone, behind, followers)
	if behind > alone+20 {
		t.Errorf("a claim touches %d buffers, %d without the blocked key", behind, alone)
	}

	// Few rows of one key among many of another: the planner must not walk them.
	earliest := statement{sent.last(t, "AS k (key)").text, []string{`{"hot","cold"}`, `{1000001,1000002}`}}
	for _, settings := range [][]string{nil, {`SET LOCAL plan_cache_mode = force_generic_plan`}, {`SET LOCAL enable_sort = off`}} {
		plan, text := n.explain(t, earliest, settings...)
		if buffers := plan.Hit + plan.Read; buffers > 20 {
			t.Errorf("the look for earlier messages touches %d buffers:\n%s", buffers, text)
		}
	}
}

// A message is parked while the one before it is being settled: either the
// settler sees that, or the parker that it is not needed any more.
func TestParkingExcludesSettling(t *testing.T) {
	t.Parallel()
	target := target{"pgx", testdb.Postgres(t)}
	n, parker := openNode(t, target, false), openNode(t, target, true)
	entries := taskEntries("head", "follower")
	for i := range entries {
		entries[i].OrderingKey = "k"
	}
	if _, err := n.repo.Accept(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
	entered, release := make(chan struct{}), make(chan struct{})
	n.before = func(_ context.Context, id string) error {
		if id == "head" {
			close(entered)
			<-release
		}
		return nil
	}
	// No audit comes to the rescue.
	config := inbox.ProcessorConfig{BatchSize: 1, Workers: 1, Heartbeat: time.Hour, PollInterval: 50 * time.Millisecond}
	settled := make(chan error, 1)
	go func() { settled <- n.runUntil(t.Context(), config, 2) }()
	<-entered

	parked, commit := make(chan struct{}), make(chan struct{})
	parking := false
	parker.db = parker.db.WithQueryHook(hook{before: func(event *bun.QueryEvent) {
		parking = parking || strings.Contains(event.Query, "SET state = 1")
		if parking && event.Query == "COMMIT" {
			parking = false
			close(parked)
			<-commit
		}
	}})
	parker.reopen()
	drained := make(chan error, 1)
	go func() {
		_, err := parker.mustProcessor(t, inbox.ProcessorConfig{BatchSize: 1, Heartbeat: time.Hour}).Drain(t.Context())
		drained <- err
	}()
	<-parked
	close(release)
	eventually(t, "the settler waits for the parker, or is done", 10*time.Second, func() bool {
		return n.count(t, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'`) > 0 ||
			n.count(t, `SELECT count(*) FROM inbox_messages WHERE status = 1`) > 0
	})
	close(commit)
	if err := <-drained; err != nil {
		t.Error(err)
	}
	select {
	case err := <-settled:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(15 * time.Second):
		t.Fatal("the follower was left parked")
	}
}

// With a few workers and many messages per key nothing is left behind, and every
// key keeps its order.
func BenchmarkOrderingKeys(b *testing.B) {
	for _, keys := range []int{0, 1000, 1} {
		b.Run(fmt.Sprintf("%d keys", keys), func(b *testing.B) {
			n := openNode(b, target{"pgx", testdb.Postgres(b)}, false)
			entries := taskEntries(taskIDs("m", b.N)...)
			for i := range entries {
				if keys > 0 {
					entries[i].OrderingKey = fmt.Sprint(i % keys)
				}
			}
			for some := range slices.Chunk(entries, 1000) {
				if _, err := n.repo.Accept(b.Context(), some); err != nil {
					b.Fatal(err)
				}
			}
			b.ResetTimer()
			if err := n.runUntil(b.Context(), inbox.ProcessorConfig{Workers: 4}, b.N); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
		})
	}
}

// A schema that is named and one that is found on the search path are one inbox,
// and so are their ordering keys.
func TestOrderingKeysOfOneTableMeet(t *testing.T) {
	t.Parallel()
	target := target{"pgx", testdb.Postgres(t)}
	n, other := openNode(t, target, false), openNode(t, target, true)
	entries := taskEntries("first", "second")
	for i := range entries {
		entries[i].OrderingKey = "k"
	}
	if _, err := n.repo.Accept(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
	named, err := inbox.NewRepository(other.db, other.names, inbox.Config{Schema: "public"})
	if err != nil {
		t.Fatal(err)
	}
	mine, err := n.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Rollback()
	if claimed, err := n.repo.GetMany(t.Context(), mine, 1); err != nil || len(claimed) != 1 {
		t.Fatalf("%d claimed, %v", len(claimed), err)
	}
	tx, err := other.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	var free bool
	err = tx.NewRaw(`SELECT pg_try_advisory_xact_lock(hashtextextended('k', 'inbox_queue'::regclass::oid::bigint))`).Scan(t.Context(), &free)
	if err != nil || free {
		t.Errorf("the lock of the key is free while its message is claimed: %v", err)
	}
	if claimed, err := named.GetMany(t.Context(), tx, 10); err != nil || len(claimed) != 0 {
		t.Errorf("%d claimed beside the first, %v", len(claimed), err)
	}
}
