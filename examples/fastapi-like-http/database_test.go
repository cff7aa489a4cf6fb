package main

import (
	"testing"

	"github.com/letterbox-go/letterbox/internal/testdb"
)

func TestPgxPreparesNothingUnlessTheURLSaysSo(t *testing.T) {
	t.Parallel()
	dsn := testdb.Postgres(t)
	prepared := func(dsn string) (n int) {
		db, err := openDatabase(dsn)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		db.SetMaxOpenConns(1)
		for range 2 {
			if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_prepared_statements").Scan(&n); err != nil {
				t.Fatal(err)
			}
		}
		return n
	}
	if n := prepared(dsn); n != 0 {
		t.Errorf("%d prepared statements", n)
	}
	if n := prepared(dsn + "&default_query_exec_mode=cache_statement"); n == 0 {
		t.Error("the mode in the URL is ignored")
	}
}

func TestASQLiteFileMayHaveAnyName(t *testing.T) {
	t.Parallel()
	dsn := t.TempDir() + "/a b?c#d%41&_txlock=deferred.db"
	app := openApp(t, dsn)
	var file string
	if err := app.db.QueryRowContext(t.Context(), "SELECT file FROM pragma_database_list").Scan(&file); err != nil {
		t.Fatal(err)
	}
	if file != dsn {
		t.Errorf("opened %q, want %q", file, dsn)
	}
}
