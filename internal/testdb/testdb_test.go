package testdb_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/uptrace/bun"
)

func TestEveryDatabaseIsNewEmptyAndDroppedAfterTheTest(t *testing.T) {
	t.Parallel()
	keeper := connect(t, testdb.Postgres(t))

	var dsns []string
	t.Run("while the tests run", func(t *testing.T) {
		for range 4 {
			dsn := testdb.Postgres(t)
			dsns = append(dsns, dsn)
			conn := connect(t, dsn) // left open: the drop ends it
			if _, err := conn.Exec(t.Context(), "CREATE TABLE mine ()"); err != nil {
				t.Fatalf("the database is not new: %v", err)
			}
		}
	})
	for _, dsn := range dsns {
		u, err := url.Parse(dsn)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(u.Path, "/")
		if !strings.HasPrefix(name, "letterbox_test_") {
			t.Errorf("database is called %s", name)
		}
		var found bool
		err = keeper.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&found)
		if err != nil {
			t.Fatal(err)
		}
		if found {
			t.Errorf("database %s is still there", name)
		}
	}
}

func TestParallelTestsShareOneServer(t *testing.T) {
	t.Parallel()
	hosts := make(chan string, 8)
	t.Run("all", func(t *testing.T) {
		for i := range cap(hosts) {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				u, err := url.Parse(testdb.Postgres(t))
				if err != nil {
					t.Fatal(err)
				}
				hosts <- u.Host
			})
		}
	})
	close(hosts)
	seen := map[string]bool{}
	for host := range hosts {
		seen[host] = true
	}
	if len(seen) != 1 {
		t.Errorf("servers: %v", seen)
	}
}

func TestTheServerIsSetForSpeedButCommitsAreHonest(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"autovacuum":              "on",
		"fsync":                   "off",
		"full_page_writes":        "off",
		"lc_collate":              "C",
		"listen_addresses":        "127.0.0.1",
		"max_connections":         "300",
		"server_encoding":         "UTF8",
		"synchronous_commit":      "on",
		"TimeZone":                "America/Sao_Paulo",
		"unix_socket_directories": "",
	}
	for name, open := range drivers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t)
			for setting, value := range want {
				var got string
				err := db.NewRaw("SELECT current_setting(?, true)", setting).Scan(t.Context(), &got)
				if err != nil {
					t.Fatal(err)
				}
				// PostgreSQL 16 has no lc_collate any more.
				if got != value && !(setting == "lc_collate" && got == "") {
					t.Errorf("%s is %q, want %q", setting, got, value)
				}
			}
		})
	}
}

// drivers open a PostgreSQL database each.
var drivers = map[string]func(testing.TB) *bun.DB{
	"pgx":      testdb.PGX,
	"pgdriver": testdb.PGDriver,
}

// connect opens one connection, closed after the test.
func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}
