package sqlstore_test

import (
	"net/url"
	"testing"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/dedupe"
	"github.com/letterbox-go/letterbox/dedupe/dedupetest"
	"github.com/letterbox-go/letterbox/dedupe/sqlstore"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

// migrated returns a store that is ready.
func migrated(t *testing.T, db *bun.DB, config sqlstore.Config) *sqlstore.Store {
	t.Helper()
	store, err := sqlstore.New(db, config)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return store
}

var databases = []struct {
	name string
	make func(tb testing.TB) (place string)
	open func(place string) (*bun.DB, error)
}{
	{"PostgreSQL through pgx", testdb.Postgres, testdb.OpenPGX},
	{"PostgreSQL through pgdriver", testdb.Postgres, testdb.OpenPGDriver},
	{"SQLite", testdb.SQLiteFile, testdb.OpenSQLite},
}

// opened opens a database and closes it after the test.
func opened(t *testing.T, open func(string) (*bun.DB, error), place string) *bun.DB {
	t.Helper()
	db, err := open(place)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestContract(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			dedupetest.Run(t, func(t *testing.T) dedupe.Store {
				return migrated(t, opened(t, d.open, d.make(t)), sqlstore.Config{})
			})
		})
	}
}

// Some applications make every transaction serializable, and then a conflict is an
// error that asks for another try.
func TestContractWhenTransactionsAreSerializable(t *testing.T) {
	t.Parallel()
	dedupetest.Run(t, func(t *testing.T) dedupe.Store {
		dsn, err := url.Parse(testdb.Postgres(t))
		if err != nil {
			t.Fatal(err)
		}
		query := dsn.Query()
		query.Set("default_transaction_isolation", "serializable")
		dsn.RawQuery = query.Encode()
		return migrated(t, opened(t, testdb.OpenPGX, dsn.String()), sqlstore.Config{})
	})
}

func TestKilled(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			dedupetest.RunKilled(t,
				func(t *testing.T) string { return d.make(t) },
				func(t *testing.T, place string) dedupe.Store {
					return migrated(t, opened(t, d.open, place), sqlstore.Config{})
				})
		})
	}
}
