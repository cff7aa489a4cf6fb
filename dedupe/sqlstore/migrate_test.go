package sqlstore_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/dedupe"
	"github.com/letterbox-go/letterbox/dedupe/sqlstore"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

func TestManyProcessesMigrateAtOnce(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			place := d.make(t)
			var all sync.WaitGroup
			for range 8 {
				db := opened(t, d.open, place)
				all.Go(func() {
					store, err := sqlstore.New(db, sqlstore.Config{})
					if err != nil {
						t.Error(err)
						return
					}
					for range 2 {
						if err := store.Migrate(t.Context()); err != nil {
							t.Error(err)
						}
					}
				})
			}
			all.Wait()
		})
	}
}

func TestMigrateSendsNoDDLWhenTheTableIsThere(t *testing.T) {
	t.Parallel()
	db := testdb.PGX(t)
	store := migrated(t, db, sqlstore.Config{LockTimeout: 100 * time.Millisecond})
	// Any DDL, and any lock on the table, would wait for this transaction.
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.Exec(`LOCK TABLE inbox_dedupe IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	if err := store.Migrate(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestTwoPrefixesAreTwoStores(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			db := opened(t, d.open, d.make(t))
			configs := []sqlstore.Config{{}, {Prefix: "other"}, {Prefix: `o'd"d é`}}
			if d.name != "SQLite" {
				configs = append(configs, sqlstore.Config{Schema: `An"other`}, sqlstore.Config{Schema: "third", Prefix: "other"})
			}
			for i, config := range configs {
				store := migrated(t, db, config)
				if err := store.Migrate(t.Context()); err != nil {
					t.Errorf("store %d: %v", i, err)
				}
				found, err := store.Reserve(t.Context(), dedupe.Key{ID: "a"}, "t", time.Minute)
				if err != nil || found.State != dedupe.Reserved {
					t.Errorf("store %d: %v, %v", i, found.State, err)
				}
				if held, err := store.Confirm(t.Context(), dedupe.Key{ID: "a"}, "t", time.Minute); err != nil || !held {
					t.Errorf("store %d: confirm: %v, %v", i, held, err)
				}
			}
		})
	}
}

func TestNewReportsEveryProblem(t *testing.T) {
	t.Parallel()
	postgres, err := testdb.OpenPGX("postgres://nobody@127.0.0.1:1/nothing")
	if err != nil {
		t.Fatal(err)
	}
	defer postgres.Close()
	_, err = sqlstore.New(postgres, sqlstore.Config{Schema: "a?b", Prefix: strings.Repeat("p", 46), LockTimeout: -1})
	for _, field := range []string{"Schema", "Prefix", "LockTimeout"} {
		if err == nil || !strings.Contains(err.Error(), "sqlstore: config: "+field+": ") {
			t.Errorf("%s is not reported: %v", field, err)
		}
	}
	if _, err := sqlstore.New(postgres, sqlstore.Config{Prefix: strings.Repeat("p", 45)}); err != nil {
		t.Errorf("the longest prefix: %v", err)
	}
	if _, err := sqlstore.New(nil, sqlstore.Config{}); err == nil {
		t.Error("a nil database is accepted")
	}
	if _, err := sqlstore.New(testdb.SQLite(t), sqlstore.Config{Schema: "s"}); err == nil {
		t.Error("a schema on SQLite is accepted")
	}
}

func TestAMemoryDatabaseNeedsOneConnection(t *testing.T) {
	t.Parallel()
	db := opened(t, testdb.OpenSQLite, "")
	store, err := sqlstore.New(db, sqlstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Migrate(t.Context()); !errors.Is(err, sqlstore.ErrMemoryDatabase) {
		t.Errorf("got %v", err)
	}
	db.SetMaxOpenConns(1)
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Reserve(t.Context(), dedupe.Key{ID: "a"}, "t", time.Minute); err != nil {
		t.Error(err)
	}
}

func TestADatabaseThatIsDown(t *testing.T) {
	t.Parallel()
	db, err := testdb.OpenPGX("postgres://nobody@127.0.0.1:1/nothing") // nobody listens there
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	store, err := sqlstore.New(db, sqlstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for policy, wantRan := range map[dedupe.StoreErrorPolicy]bool{dedupe.Run: true, dedupe.Fail: false} {
		guard, err := dedupe.New(dedupe.Config{Store: store, OnStoreError: policy})
		if err != nil {
			t.Fatal(err)
		}
		ran, err := guard.Do(t.Context(), "s", "k", func(context.Context) error { return nil })
		if ran != wantRan || (err == nil) != wantRan || guard.Stats().StoreErrors != 2 {
			t.Errorf("policy %v: ran %v, %v, %+v", policy, ran, err, guard.Stats())
		}
	}
	if err := store.Migrate(t.Context()); err == nil {
		t.Error("migrate: no error")
	}
}

func TestTheClockOfSQLiteCanBeReplaced(t *testing.T) {
	t.Parallel()
	now := time.Now()
	store := migrated(t, testdb.SQLite(t), sqlstore.Config{Clock: func() time.Time { return now }})
	reserve := func(token string) dedupe.State {
		found, err := store.Reserve(t.Context(), dedupe.Key{ID: "a"}, token, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return found.State
	}
	if got := reserve("a"); got != dedupe.Reserved {
		t.Error(got)
	}
	now = now.Add(time.Hour - time.Millisecond)
	if got := reserve("b"); got != dedupe.Held {
		t.Error(got)
	}
	now = now.Add(time.Millisecond)
	if got := reserve("b"); got != dedupe.Reserved {
		t.Error(got)
	}
}
