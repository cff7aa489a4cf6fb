package inbox_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

// sweeping is a repository on the node's database with another retention, and
// hooks of its own.
func (n *node) sweeping(t testing.TB, retention inbox.Retention, hooks hook) *inbox.Repository {
	t.Helper()
	repo, err := inbox.NewRepository(n.db.WithQueryHook(hooks), n.names, inbox.Config{Retention: retention})
	if err != nil {
		t.Fatal(err)
	}
	return repo
}

// aged stores processed messages that are so many days old.
func (n *node) aged(t testing.TB, count, days int) {
	t.Helper()
	series, past := `WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < %[1]d)`,
		`strftime('%%Y-%%m-%%dT%%H:%%M:%%f000Z', 'now', '-%[2]d days')`
	payload := `CAST('{}' AS BLOB)`
	if n.postgres() {
		series, past = `WITH s (n) AS (SELECT generate_series(1, %[1]d))`, `now() - interval '%[2]d days'`
		payload = `'{}'::bytea`
	}
	n.exec(t, fmt.Sprintf(series+`
		INSERT INTO inbox_messages (source, message_id, name, ordering_key, payload, metadata, status, received_at, processed_at)
		SELECT 'aged %[2]d', CAST(n AS TEXT), 'task', '', `+payload+`, '', 1, `+past+`, `+past+` FROM s`, count, days))
}

func TestASweepWorksInBoundedBatches(t *testing.T) {
	t.Parallel()
	targets(t, func(t *testing.T, target target) {
		n := openNode(t, target, false)
		n.aged(t, 20_000, 40)
		n.aged(t, 500, 20)
		n.exec(t, `INSERT INTO inbox_attempts SELECT id, 1, received_at, 1, 'p', 'e' FROM inbox_messages`)
		var most, batches atomic.Int64
		repo := n.sweeping(t, inbox.Retention{}, hook{after: func(event *bun.QueryEvent) {
			if strings.Contains(event.Query, "m.id > ") && strings.Contains(event.Query, "discarded_at") {
				batches.Add(1)
			}
			if list, ok := strings.CutPrefix(strings.TrimSpace(event.Query), `DELETE FROM "inbox_messages"`); ok {
				most.Store(max(most.Load(), int64(strings.Count(list, ",")+1)))
			}
		}})
		accepted := make(chan error, 1)
		var waited time.Duration
		go func() {
			for i := range 100 {
				began := time.Now()
				if _, err := n.repo.Accept(t.Context(), taskEntries(fmt.Sprintf("meanwhile %d", i))); err != nil {
					accepted <- err
					return
				}
				waited = max(waited, time.Since(began))
			}
			accepted <- nil
		}()
		result, err := repo.Sweep(t.Context())
		if err != nil || result.Deleted != 20_000 {
			t.Errorf("swept %+v, %v", result, err)
		}
		if err := <-accepted; err != nil {
			t.Error(err)
		}
		if left := n.count(t, `SELECT count(*) FROM inbox_messages WHERE status = 1`); left != 500 {
			t.Errorf("%d processed messages are left", left)
		}
		if left := n.count(t, `SELECT count(*) FROM inbox_attempts`); left != 500 {
			t.Errorf("attempts of %d messages are left", left)
		}
		if most.Load() == 0 || most.Load() > 500 || batches.Load() < 40 {
			t.Errorf("%d batches, of at most %d messages", batches.Load(), most.Load())
		}
		t.Logf("%d batches; an accept waited for %v at most", batches.Load(), waited)
		n.drainAll(t)
	})
}

// What a batch has examined is a proposal: the DELETE looks at the row again.
func TestASweepChecksItsConditionsAgain(t *testing.T) {
	t.Parallel()
	n := openNode(t, target{"pgx", testdb.Postgres(t)}, false)
	n.aged(t, 10, 40)
	other, err := n.target.open()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	change := func(query string) {
		if _, err := other.ExecContext(context.Background(), query); err != nil {
			t.Error(err)
		}
	}
	var once atomic.Bool
	repo := n.sweeping(t, inbox.Retention{DedupeWindow: 30 * 24 * time.Hour, PayloadRetention: -1}, hook{after: func(event *bun.QueryEvent) {
		if strings.Contains(event.Query, "m.id > ") && once.CompareAndSwap(false, true) {
			change(`UPDATE inbox_messages SET processed_at = now() WHERE message_id = '3'`) // a receipt renewed
			change(`UPDATE inbox_messages SET received_at = now() WHERE message_id = '4'`)
			change(`UPDATE inbox_messages SET status = 0, processed_at = NULL WHERE message_id = '5'`)
		}
	}})
	result, err := repo.Sweep(t.Context())
	if err != nil || result.Deleted != 7 {
		t.Errorf("swept %+v, %v", result, err)
	}
	if left := n.count(t, `SELECT count(*) FROM inbox_messages WHERE message_id IN ('3', '4', '5')`); left != 3 || !once.Load() {
		t.Errorf("%d of the changed messages are left", left)
	}
}

// A row in somebody's hands is left for the next time, and nobody waits.
func TestASweepLeavesWhatSomebodyHolds(t *testing.T) {
	t.Parallel()
	n := openNode(t, target{"pgx", testdb.Postgres(t)}, false)
	n.aged(t, 10, 40)
	tx, err := n.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(t.Context(), `SELECT * FROM inbox_messages WHERE message_id = '3' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	result, err := n.repo.Sweep(t.Context())
	if err != nil || result.Deleted != 9 {
		t.Errorf("swept %+v, %v", result, err)
	}
}

// While one sweeper is in the middle of a batch, another goes away at once.
func TestOneSweeperWorksAtATime(t *testing.T) {
	t.Parallel()
	targets(t, func(t *testing.T, target target) {
		n := openNode(t, target, false)
		n.aged(t, 10, 40)
		second := openNode(t, target, true).repo
		var first *inbox.Repository
		var asked atomic.Bool
		first = n.sweeping(t, inbox.Retention{}, hook{after: func(event *bun.QueryEvent) {
			if !strings.Contains(event.Query, "m.id > ") || !asked.CompareAndSwap(false, true) {
				return
			}
			others := []*inbox.Repository{first}
			if n.postgres() { // on SQLite another repository waits for the one writer
				others = append(others, second)
			}
			for _, other := range others {
				if result, err := other.Sweep(context.Background()); !result.Busy || result.Examined != 0 || err != nil {
					t.Errorf("a second sweeper: %+v, %v", result, err)
				}
			}
		}})
		if result, err := first.Sweep(t.Context()); result.Deleted != 10 || err != nil || !asked.Load() {
			t.Errorf("swept %+v, %v", result, err)
		}
	})
}

func TestASweepSurvivesAStatementTimeout(t *testing.T) {
	t.Parallel()
	dsn := testdb.Postgres(t)
	n := openNode(t, target{"pgx", dsn}, false)
	n.aged(t, 600, 40)
	// Each row costs 1 ms, and a statement has 100.
	n.exec(t, `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.001); RETURN OLD; END'`)
	n.exec(t, `CREATE TRIGGER slow BEFORE DELETE ON inbox_messages FOR EACH ROW EXECUTE FUNCTION slow()`)
	n.exec(t, `ALTER DATABASE `+databaseOf(dsn)+` SET statement_timeout = '100ms'`)
	short := openNode(t, target{"pgx", dsn}, true)
	var cancelled atomic.Int64
	repo := short.sweeping(t, inbox.Retention{}, hook{after: func(event *bun.QueryEvent) {
		if event.Err != nil {
			cancelled.Add(1)
		}
	}})
	result, err := repo.Sweep(t.Context())
	if err != nil || result.Deleted != 600 || cancelled.Load() == 0 {
		t.Errorf("swept %+v after %d timeouts, %v", result, cancelled.Load(), err)
	}
}

// databaseOf quotes the name of the database that a URL points at.
func databaseOf(dsn string) string {
	_, name, _ := strings.Cut(strings.TrimPrefix(dsn, "postgres://"), "/")
	name, _, _ = strings.Cut(name, "?")
	return `"` + name + `"`
}

func TestRunSweeps(t *testing.T) {
	t.Parallel()
	targets(t, func(t *testing.T, target target) {
		n := openNode(t, target, false)
		n.aged(t, 1000, 40)
		n.aged(t, 10, 20)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		off := n.mustProcessor(t, inbox.ProcessorConfig{SweepInterval: -1})
		on := n.mustProcessor(t, inbox.ProcessorConfig{SweepInterval: 100 * time.Millisecond})
		go func() { done <- on.Run(ctx) }()
		eventually(t, "the old messages are gone", 20*time.Second, func() bool {
			return n.count(t, `SELECT count(*) FROM inbox_messages`) == 10
		})
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		ctx, stop = context.WithCancel(t.Context())
		stop()
		if err := off.Run(ctx); err != nil {
			t.Error(err)
		}
	})
}

func TestRetentionIsValidated(t *testing.T) {
	t.Parallel()
	n := openNode(t, target{"sqlite", testdb.SQLiteFile(t)}, false)
	const day = 24 * time.Hour
	for _, c := range []struct {
		retention inbox.Retention
		complaint string
	}{
		{inbox.Retention{}, ""},
		{inbox.Retention{DedupeWindow: -1, PayloadRetention: -1}, ""},
		{inbox.Retention{PendingRetention: 60 * day, DeadRetention: 30 * day}, ""},
		{inbox.Retention{PendingRetention: 59 * day}, "PendingRetention"},
		{inbox.Retention{DeadRetention: 29 * day}, "DeadRetention"},
		{inbox.Retention{DedupeWindow: -1, DeadRetention: 900 * day}, "DeadRetention"},
		{inbox.Retention{DedupeWindow: -1, PendingRetention: 900 * day}, "PendingRetention"},
		{inbox.Retention{PendingRetention: -1}, "PendingRetention"},
		{inbox.Retention{DeadRetention: -1}, "DeadRetention"},
	} {
		_, err := inbox.NewRepository(n.db, n.names, inbox.Config{Retention: c.retention})
		if c.complaint == "" && err != nil || c.complaint != "" && (err == nil || !strings.Contains(err.Error(), c.complaint)) {
			t.Errorf("%+v: %v", c.retention, err)
		}
	}
}
