package doctor_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/doctor"
	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

func TestHeldSnapshot(t *testing.T) {
	t.Parallel()
	dsn := testdb.Postgres(t)
	db, err := testdb.OpenPGX(dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	p := open(t, db, inbox.Config{})
	other, err := testdb.OpenPGX(dsn + "&application_name=report")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	tx, err := other.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	var secret string
	if err := tx.NewRaw(`SELECT 'secret'`).Scan(t.Context(), &secret); err != nil {
		t.Fatal(err)
	}
	p.finds(t, doctor.Config{}) // too young
	config := doctor.Config{SnapshotAge: time.Microsecond}
	report := p.finds(t, config, "old-snapshot critical")
	p.evidence(t, report, "old-snapshot", "1 old transaction", "idle in transaction", `application "report"`, "last query at 20", "pg_terminate_backend")
	if text := fmt.Sprint(report.Findings); strings.Contains(text, "secret") {
		t.Errorf("the text of the query is shown: %s", text)
	}
	config.ShowQueries = true
	p.evidence(t, p.examine(t, config), "old-snapshot", "SELECT 'secret'")
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	// One that is open, and has no snapshot, holds nothing back.
	if tx, err = other.BeginTx(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(t.Context(), `SET LOCAL lock_timeout = '1s'`); err != nil {
		t.Fatal(err)
	}
	p.finds(t, config)
}

func TestIndexIllnesses(t *testing.T) {
	t.Parallel()
	p := open(t, testdb.PGX(t), inbox.Config{Schema: `sch"ema`, Prefix: `my in"box`})
	p.finds(t, doctor.Config{})
	p.exec(t, `DROP INDEX "sch""ema"."my in""box_queue_claim"`)
	report := p.finds(t, doctor.Config{}, "missing-index critical")
	p.evidence(t, report, "missing-index", `my in"box_queue_claim`, `CREATE INDEX CONCURRENTLY "my in""box_queue_claim" ON "sch""ema"."my in""box_queue" ("name", "due", "id") WHERE "state" = 0;`)
	for _, f := range report.Findings {
		if f.ID == "missing-index" {
			p.exec(t, f.Remedy) // the remedy heals
		}
	}
	p.finds(t, doctor.Config{})
	p.exec(t, `UPDATE pg_index SET indisvalid = false WHERE indexrelid = '"sch""ema"."my in""box_queue_dead"'::regclass`)
	report = p.finds(t, doctor.Config{}, "invalid-index critical")
	for _, f := range report.Findings {
		if f.ID == "invalid-index" {
			p.exec(t, f.Remedy)
		}
	}
	p.finds(t, doctor.Config{})
	p.exec(t, `ALTER TABLE "sch""ema"."my in""box_queue" DROP CONSTRAINT "my in""box_queue_pkey"`)
	report = p.finds(t, doctor.Config{}, "missing-index critical")
	for _, f := range report.Findings {
		if f.ID == "missing-index" {
			p.exec(t, f.Remedy)
		}
	}
	p.exec(t, `CREATE INDEX odd ON "sch""ema"."my in""box_messages" (id) WHERE status = 2`)
	p.evidence(t, p.finds(t, doctor.Config{}, "costly-index warning"), "costly-index", "odd")
}

func TestPlanWithoutItsIndex(t *testing.T) {
	t.Parallel()
	p := open(t, testdb.PGX(t), inbox.Config{})
	p.alive(t, `["task"]`)
	p.exec(t,
		`INSERT INTO inbox_messages (id, source, message_id, name, ordering_key, metadata, received_at)
			SELECT i, '', i::text, 'task', '', '{}', clock_timestamp() FROM generate_series(1, 80000) i`,
		`INSERT INTO inbox_queue (id, name, ordering_key, due) SELECT i, 'task', '', clock_timestamp() FROM generate_series(1, 80000) i`,
		`VACUUM ANALYZE inbox_messages, inbox_queue`)
	p.finds(t, doctor.Config{})
	var name string
	if err := p.db.NewRaw(`SELECT current_database()`).Scan(t.Context(), &name); err != nil {
		t.Fatal(err)
	}
	p.exec(t, fmt.Sprintf(`ALTER DATABASE %s SET enable_indexscan = off`, name))
	p.db.SetMaxIdleConns(0) // settings of a database count for new sessions
	report := p.finds(t, doctor.Config{}, "plan warning")
	p.evidence(t, report, "plan", "The claim does not use its index", "Scan")
}

func TestSettingsThatVoidAGuarantee(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]string{
		"default_transaction_isolation = 'repeatable read'": "isolation warning",
		"synchronous_commit = off":                          "synchronous-commit-off critical",
		"default_transaction_read_only = on":                "read-only critical",
		"track_counts = off":                                "autovacuum-off warning",
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			p := open(t, testdb.PGX(t), inbox.Config{})
			var name string
			if err := p.db.NewRaw(`SELECT current_database()`).Scan(t.Context(), &name); err != nil {
				t.Fatal(err)
			}
			p.exec(t, fmt.Sprintf("ALTER DATABASE %s SET %s", name, setting))
			p.db.SetMaxIdleConns(0)
			p.finds(t, doctor.Config{}, want)
		})
	}
}

func TestTinyPool(t *testing.T) {
	t.Parallel()
	p := open(t, testdb.PGX(t), inbox.Config{})
	p.finds(t, doctor.Config{Workers: 18})
	for _, size := range []int{2, 1} { // the examination itself must not need more
		p.db.SetMaxOpenConns(size)
		report := p.finds(t, doctor.Config{Workers: 4}, "small-pool warning")
		p.evidence(t, report, "small-pool", fmt.Sprintf("%d connections at most, 4 workers", size), "SetMaxOpenConns(6)")
	}
	p.alive(t, `["task"]`)
	p.exec(t, `UPDATE inbox_processors SET workers = 5000`)
	p.evidence(t, p.finds(t, doctor.Config{}, "connections warning"), "connections", "running processors need 5002")
}

func TestSkewedClock(t *testing.T) {
	t.Parallel()
	p := open(t, testdb.PGX(t), inbox.Config{})
	for by, want := range map[time.Duration]string{10 * time.Minute: "ahead of", -10 * time.Minute: "behind"} {
		report := p.finds(t, doctor.Config{Clock: func() time.Time { return time.Now().Add(by) }}, "clock-skew warning")
		p.evidence(t, report, "clock-skew", want, "10m0s")
	}
}

func TestVacuumDoesNotKeepUp(t *testing.T) {
	t.Parallel()
	p := open(t, testdb.PGX(t), inbox.Config{})
	p.exec(t, `ALTER TABLE inbox_queue SET (autovacuum_enabled = off)`)
	p.finds(t, doctor.Config{}, "autovacuum-off warning")
	p.exec(t,
		`INSERT INTO inbox_queue (id, name, ordering_key, due, state) SELECT i, 'task', '', clock_timestamp() + interval '1 day', 0 FROM generate_series(1, 20000) i`,
		`DELETE FROM inbox_queue`)
	var report doctor.Report
	eventually(t, func() bool { // the statistics come a moment later
		report = p.examine(t, doctor.Config{})
		return len(illnesses(report)) > 1
	})
	p.finds(t, doctor.Config{}, "autovacuum-off warning", "dead-tuples warning")
	p.evidence(t, report, "dead-tuples", "inbox_queue: 0 live, 20000 dead rows (100 %), last vacuum never")
}

func TestWhatHoldsVacuumBackWithoutASession(t *testing.T) {
	t.Parallel()
	server := testdb.StartServer(t, testdb.Config{Settings: map[string]string{
		"max_prepared_transactions": "4", "wal_level": "logical", "max_replication_slots": "4", "shared_buffers": "16MB",
	}})
	db, err := testdb.OpenPGX(server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	p := open(t, db, inbox.Config{})
	config := doctor.Config{SnapshotAge: time.Microsecond}
	p.finds(t, config)
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	for _, statement := range []string{`SELECT pg_current_xact_id()`, `PREPARE TRANSACTION 'left behind'`} {
		if _, err := tx.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	_ = tx.Rollback()
	p.evidence(t, p.finds(t, config, "prepared-transactions critical"), "prepared-transactions", `"left behind"`)
	p.exec(t, `ROLLBACK PREPARED 'left behind'`, `SELECT pg_create_logical_replication_slot('gone', 'pgoutput')`)
	p.evidence(t, p.finds(t, config, "replication-slots warning"), "replication-slots", `"gone", no consumer`)
}

func TestRoleWithFewRights(t *testing.T) {
	t.Parallel()
	p := open(t, testdb.PGX(t), inbox.Config{})
	// One session that is somebody else, for all that follows.
	p.db.SetMaxOpenConns(1)
	role := fmt.Sprintf("reader_%d", time.Now().UnixNano())
	p.exec(t, `CREATE ROLE `+role, `GRANT SELECT ON ALL TABLES IN SCHEMA public TO `+role, `SET ROLE `+role)
	report := p.finds(t, doctor.Config{})
	p.evidence(t, report, "limited-view", "pg_read_all_stats")
	p.exec(t, `RESET ROLE`, `DROP OWNED BY `+role, `DROP ROLE `+role)
}
