package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

// Ten processes start at once on an empty database.
func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	targets(t, func(t *testing.T, target target) {
		var waits []func() error
		for range 10 {
			waits = append(waits, order{Role: "migrate", Target: target}.child(t))
		}
		for _, wait := range waits {
			if err := wait(); err != nil {
				t.Error(err)
			}
		}
		n := openNode(t, target, true)
		if got := n.count(t, `SELECT count(*) FROM inbox_schema`); got != 2 {
			t.Errorf("%d rows in inbox_schema, want one for each of the 2 versions", got)
		}
		n.accept(t, "works")
	})
}

// The same within one process, with pools of their own, and many times, so that
// the first statements really meet.
func TestMigrateAtOnceWithinAProcess(t *testing.T) {
	t.Parallel()
	targets(t, func(t *testing.T, target target) {
		const rounds, migrators = 5, 10
		nodes := make([]*node, migrators)
		for i := range nodes {
			nodes[i] = openNode(t, target, true)
		}
		for round := range rounds {
			config := inbox.Config{Prefix: fmt.Sprint("round", round)}
			if nodes[0].postgres() && round%2 == 1 {
				config.Schema = config.Prefix
			}
			var group sync.WaitGroup
			for _, n := range nodes {
				group.Go(func() {
					repo, err := inbox.NewRepository(n.db, n.names, config)
					if err == nil {
						err = repo.Migrate(t.Context())
					}
					if err != nil {
						t.Errorf("round %d: %v", round, err)
					}
				})
			}
			group.Wait()
		}
	})
}

func TestMigrateAgainSendsNoDDL(t *testing.T) {
	t.Parallel()
	targets(t, func(t *testing.T, target target) {
		n := openNode(t, target, false)
		var sent []string
		db := n.db.WithQueryHook(hook{before: func(event *bun.QueryEvent) { sent = append(sent, event.Query) }})
		repo, err := inbox.NewRepository(db, n.names, inbox.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if err := repo.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(sent) == 0 {
			t.Error("the hook saw nothing")
		}
		for _, query := range sent {
			first, _, _ := strings.Cut(strings.TrimSpace(query), " ")
			if first != "SELECT" {
				t.Errorf("a second Migrate sent %q", query)
			}
		}
	})
}

// oddNames are legal names of schemas and prefixes.
var oddNames = []string{"plain", "Upper", "two words", `a"b`, `x'y`, "ünïcödé_日本", "semi;colon", "dash--dash", "percent%s", "select", "$1", "{messages}"}

func TestOddNames(t *testing.T) {
	t.Parallel()
	targets(t, func(t *testing.T, target target) {
		n := openNode(t, target, false)
		var configs []inbox.Config
		for _, name := range oddNames {
			configs = append(configs, inbox.Config{Prefix: name})
			if n.postgres() {
				configs = append(configs, inbox.Config{Schema: name}, inbox.Config{Schema: name, Prefix: name})
			}
		}
		for i, config := range configs {
			n.isOwnInbox(t, config, i)
		}
		// The default one, and every other, has seen nothing of all that.
		if got := n.count(t, `SELECT count(*) FROM inbox_messages`); got != 0 {
			t.Errorf("%d messages of other inboxes in the default one", got)
		}
		if got := n.count(t, `SELECT count(*) FROM effects`); got != len(configs) {
			t.Errorf("%d effects, want %d", got, len(configs))
		}
	})
}

// isOwnInbox fails unless the same message is new in this inbox, is processed,
// dies where it fails, and is counted.
func (n *node) isOwnInbox(t *testing.T, config inbox.Config, i int) {
	t.Helper()
	repo, err := inbox.NewRepository(n.db, n.names, config)
	if err != nil {
		t.Fatalf("%+v: %v", config, err)
	}
	for range 2 {
		if err := repo.Migrate(t.Context()); err != nil {
			t.Fatalf("%+v: %v", config, err)
		}
	}
	outcomes, err := repo.Accept(t.Context(), taskEntries("same", "fails"))
	if err != nil || outcomes[0].Kind != inbox.Stored || outcomes[0].ID != 1 {
		t.Fatalf("%+v: %v, %v", config, outcomes, err)
	}
	defaultRepo := n.repo
	defer func() { n.repo = defaultRepo }()
	n.repo = repo
	n.before = func(_ context.Context, id string) error {
		if id == "fails" {
			return inbox.Permanent(errors.New("on purpose"))
		}
		return nil
	}
	p := n.mustProcessor(t, inbox.ProcessorConfig{})
	if got := n.drain(t, p); got != 1 {
		t.Errorf("%+v: %d processed, want 1", config, got)
	}
	stats, err := repo.Stats(t.Context())
	if err != nil || stats.Processed != 1 || stats.Dead != 1 || stats.Pending != 0 {
		t.Errorf("%+v: %+v, %v", config, stats, err)
	}
}

func TestNamesRefused(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	for _, config := range []inbox.Config{
		{Prefix: "a?b"},
		{Prefix: `a\b`},
		{Prefix: "a\x00b"},
		{Prefix: "a\xff"},
		{Prefix: "a\nb"},
		{Prefix: strings.Repeat("x", 60)},
		{Schema: "public"},
	} {
		if _, err := inbox.NewRepository(db, inbox.NewNameMap(), config); err == nil {
			t.Errorf("%q, %q: taken", config.Schema, config.Prefix)
		}
	}
}

// Somebody else holds a lock that the migration needs.
func TestMigrateWaitsForLocks(t *testing.T) {
	t.Parallel()
	n := openNode(t, target{"pgx", testdb.Postgres(t)}, true)
	var tries atomic.Int32
	db := n.db.WithQueryHook(hook{before: func(event *bun.QueryEvent) {
		if strings.Contains(event.Query, "pg_advisory_xact_lock") {
			tries.Add(1)
		}
	}})
	repo, err := inbox.NewRepository(db, n.names, inbox.Config{LockTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	other, err := n.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Rollback()
	// The name in the catalog is locked until the transaction ends.
	if _, err := other.Exec(`CREATE TABLE inbox_messages (n int)`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := repo.Migrate(ctx); err == nil {
		t.Error("Migrate returned nil behind a lock")
	}
	tries.Store(0)
	done := make(chan error, 1)
	go func() { done <- repo.Migrate(t.Context()) }()
	eventually(t, "Migrate has given up its place and come back", 20*time.Second, func() bool { return tries.Load() >= 3 })
	select {
	case err := <-done:
		t.Fatalf("Migrate returned %v while the lock was held", err)
	default:
	}
	_ = other.Rollback()
	if err := <-done; err != nil {
		t.Errorf("Migrate when the lock is gone: %v", err)
	}
	if _, err := repo.Accept(t.Context(), taskEntries("m")); err != nil {
		t.Error(err)
	}
}

// The files are for people who use another tool: the same tables come out, and
// Migrate has nothing to do.
func TestMigrationFilesByHand(t *testing.T) {
	t.Parallel()
	targets(t, func(t *testing.T, target target) {
		byHand := openNode(t, target, true)
		dir := "migrations/sqlite"
		if byHand.postgres() {
			dir = "migrations/postgres"
		}
		files, err := fs.ReadDir(inbox.Migrations, dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := fs.ReadFile(inbox.Migrations, dir+"/"+file.Name())
			if err != nil {
				t.Fatal(err)
			}
			// The whole file at once, comments included, as psql or goose send it.
			if _, err := byHand.db.DB.ExecContext(t.Context(), string(text)); err != nil {
				t.Fatal(err)
			}
		}
		want := byHand.catalog(t)
		if least := map[bool]int{true: 40, false: 8}[byHand.postgres()]; len(want) < least {
			t.Fatalf("the catalog has %d lines only", len(want))
		}
		if err := byHand.repo.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, byHand.catalog(t)); diff != "" {
			t.Errorf("Migrate changed what the files had made:\n%s", diff)
		}
		other := target
		if byHand.postgres() {
			other.DSN = testdb.Postgres(t)
		} else {
			other.DSN = testdb.SQLiteFile(t)
		}
		migrated := openNode(t, other, true)
		if err := migrated.repo.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, migrated.catalog(t)); diff != "" {
			t.Errorf("the files (-) and Migrate (+) differ:\n%s", diff)
		}
	})
}

// catalog describes every column, constraint and index.
func (n *node) catalog(t *testing.T) []string {
	t.Helper()
	query := `
		SELECT name || ' ' || COALESCE(sql, '') FROM sqlite_master WHERE name LIKE 'inbox%'
		UNION ALL SELECT 'version ' || version FROM inbox_schema`
	if n.postgres() {
		query = `
		SELECT concat_ws(' ', attrelid::regclass, attname, format_type(atttypid, atttypmod), attnotnull, attidentity, attcollation::regcollation,
			pg_get_expr(adbin, adrelid)) FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
			WHERE attrelid::regclass::text LIKE 'inbox%' AND attnum > 0
		UNION ALL SELECT concat_ws(' ', conrelid::regclass, conname, pg_get_constraintdef(oid)) FROM pg_constraint WHERE conrelid::regclass::text LIKE 'inbox%'
		UNION ALL SELECT indexdef FROM pg_indexes WHERE tablename LIKE 'inbox%'
		UNION ALL SELECT concat_ws(' ', relname, relkind, reloptions) FROM pg_class WHERE relname LIKE 'inbox%'
		UNION ALL SELECT 'version ' || version FROM inbox_schema`
	}
	var lines []string
	if err := n.db.NewRaw(query).Scan(t.Context(), &lines); err != nil {
		t.Fatal(err)
	}
	for i, line := range lines {
		if !n.postgres() { // white space and comments are kept there
			var code []string
			for text := range strings.Lines(line) {
				text, _, _ = strings.Cut(text, "--")
				code = append(code, strings.Fields(text)...)
			}
			lines[i] = strings.Join(code, " ")
		}
	}
	slices.Sort(lines)
	return lines
}

// A row that no claim, retry or sweep could see cannot be written.
func TestTablesRefuseNonsense(t *testing.T) {
	t.Parallel()
	targets(t, func(t *testing.T, target target) {
		n := openNode(t, target, false)
		n.accept(t, "m")
		for _, statement := range []string{
			`UPDATE inbox_messages SET status = 3`,
			`UPDATE inbox_messages SET status = NULL`,
			`UPDATE inbox_messages SET status = 1`,
			`UPDATE inbox_messages SET processed_at = received_at`,
			`UPDATE inbox_messages SET message_id = ''`,
			`UPDATE inbox_messages SET name = ''`,
			`UPDATE inbox_messages SET source = NULL`,
			`UPDATE inbox_messages SET attempts = -1`,
			`UPDATE inbox_messages SET received_at = NULL`,
			`UPDATE inbox_queue SET state = 3`,
			`UPDATE inbox_queue SET state = NULL`,
			`UPDATE inbox_queue SET due = NULL`,
			`UPDATE inbox_queue SET name = NULL`,
			`UPDATE inbox_queue SET attempts = -1`,
			`UPDATE inbox_queue SET attempts = NULL`,
			`UPDATE inbox_queue SET interruptions = -1`,
			`INSERT INTO inbox_queue SELECT * FROM inbox_queue`,
			`INSERT INTO inbox_messages SELECT * FROM inbox_messages`,
			`INSERT INTO inbox_schema (version) VALUES (1)`,
		} {
			if _, err := n.db.ExecContext(t.Context(), statement); err == nil {
				t.Errorf("%s: done", statement)
			}
		}
		if !n.postgres() {
			if _, err := n.db.ExecContext(t.Context(), `UPDATE inbox_queue SET due = '2020-01-01'`); err == nil {
				t.Error("a time in another format was taken")
			}
		}
		n.drainAll(t)
		n.expectOnce(t, 1)
	})
}

// A role that may use its schema but not make schemas can still migrate.
func TestMigrateWithFewRights(t *testing.T) {
	t.Parallel()
	dsn := testdb.Postgres(t)
	n := openNode(t, target{"pgx", dsn}, true)
	role := fmt.Sprintf("letterbox_test_%d", time.Now().UnixNano())
	n.exec(t, `CREATE ROLE `+role)
	t.Cleanup(func() {
		ctx := context.Background()
		_, _ = n.db.ExecContext(ctx, `DROP OWNED BY `+role)
		if _, err := n.db.ExecContext(ctx, `DROP ROLE `+role); err != nil {
			t.Error(err)
		}
	})
	n.exec(t, `CREATE SCHEMA theirs AUTHORIZATION `+role)
	limited := openNode(t, target{"pgx", dsn}, true)
	limited.db.SetMaxOpenConns(1)
	limited.exec(t, `SET ROLE `+role)
	repo, err := inbox.NewRepository(limited.db, limited.names, inbox.Config{Schema: "theirs"})
	if err != nil {
		t.Fatal(err)
	}
	if err := repo.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := repo.Accept(t.Context(), taskEntries("m")); err != nil {
		t.Error(err)
	}
	limited.exec(t, `RESET ROLE`)
}
