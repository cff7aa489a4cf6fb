package testdb_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/uptrace/bun"
)

func TestPGXPreparesNothing(t *testing.T) {
	t.Parallel()
	db := testdb.PGX(t)
	db.SetMaxOpenConns(1)
	for i := range 5 {
		var got int
		if err := db.DB.QueryRowContext(t.Context(), "SELECT $1::int", i).Scan(&got); err != nil {
			t.Fatal(err)
		}
	}
	var prepared int
	if err := db.NewRaw("SELECT count(*) FROM pg_prepared_statements").Scan(t.Context(), &prepared); err != nil {
		t.Fatal(err)
	}
	if prepared != 0 {
		t.Errorf("%d prepared statements", prepared)
	}
}

func TestOneURLSuitsBothDrivers(t *testing.T) {
	t.Parallel()
	dsn := testdb.Postgres(t)
	for name, open := range map[string]func(string) (*bun.DB, error){
		"pgx":      testdb.OpenPGX,
		"pgdriver": testdb.OpenPGDriver,
	} {
		for _, extra := range []string{"", "&default_query_exec_mode=simple_protocol"} {
			t.Run(name+extra, func(t *testing.T) {
				t.Parallel()
				db, err := open(dsn + extra)
				if err != nil {
					t.Fatal(err)
				}
				defer db.Close()
				if err := db.PingContext(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		t.Run(name+" refuses what is no URL", func(t *testing.T) {
			t.Parallel()
			for _, dsn := range []string{"", "host=localhost", "mysql://localhost", "postgres://%zz"} {
				if db, err := open(dsn); err == nil {
					db.Close()
					t.Errorf("%q was accepted", dsn)
				}
			}
		})
	}
}

func TestSQLiteIsSetOnEveryConnection(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	for range 3 {
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close() // kept, so that the next one is another
		for pragma, want := range map[string]string{
			"journal_mode": "wal",
			"busy_timeout": "10000",
			"foreign_keys": "1",
		} {
			var got string
			if err := conn.NewRaw("PRAGMA "+pragma).Scan(t.Context(), &got); err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Errorf("%s is %s, want %s", pragma, got, want)
			}
		}
	}
}

func TestSQLiteTransactionsTakeTheWriteLockAtOnce(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	other, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.ExecContext(t.Context(), "PRAGMA busy_timeout = 0"); err != nil {
		t.Fatal(err)
	}
	if _, err := other.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err == nil {
		t.Error("a second writer was let in")
	}
}

func TestSQLiteTakesAnyPath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"plain.db", "a b.db", "what?.db", "50%.db", "%41.db", "#1.db", "ä:b.db"} {
		db, err := testdb.OpenSQLite(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.ExecContext(t.Context(), "CREATE TABLE t (x)"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		db.Close()
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}
