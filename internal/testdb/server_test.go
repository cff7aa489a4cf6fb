package testdb_test

import (
	"net"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

func TestARestartKeepsDataAndPort(t *testing.T) {
	t.Parallel()
	server := testdb.StartServer(t, testdb.Config{})
	dsn := server.DSN()
	conn := connect(t, dsn)
	if _, err := conn.Exec(t.Context(), "CREATE TABLE restarts (mode text)"); err != nil {
		t.Fatal(err)
	}
	conn.Close(t.Context())

	for i, mode := range []string{"smart", "fast", "immediate", "kill"} {
		conn := connect(t, dsn)
		if _, err := conn.Exec(t.Context(), "INSERT INTO restarts VALUES ($1)", mode); err != nil {
			t.Fatal(err)
		}
		if mode == "smart" {
			conn.Close(t.Context())
		}
		if err := server.Restart(mode); err != nil {
			t.Fatalf("%s: %v", mode, err)
		}
		if mode != "smart" && conn.Ping(t.Context()) == nil {
			t.Errorf("%s: an old connection still works", mode)
		}
		if server.DSN() != dsn {
			t.Errorf("%s: moved from %s to %s", mode, dsn, server.DSN())
		}
		var rows int
		if err := connect(t, dsn).QueryRow(t.Context(), "SELECT count(*) FROM restarts").Scan(&rows); err != nil {
			t.Fatalf("%s: %v", mode, err)
		}
		if rows != i+1 {
			t.Errorf("%s: %d rows, want %d", mode, rows, i+1)
		}
		closeAll(t, dsn)
	}
}

// closeAll ends the sessions of a server, so that a smart stop need not wait.
func closeAll(t *testing.T, dsn string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`)
	if err != nil {
		t.Fatal(err)
	}
}

func TestAStoppedServerTakesNoConnections(t *testing.T) {
	t.Parallel()
	server := testdb.StartServer(t, testdb.Config{})
	if err := server.Start(); err == nil {
		t.Error("a running server was started")
	}
	if err := server.Stop("bogus"); err == nil {
		t.Error("there is a mode bogus")
	}
	for range 2 { // the second finds it stopped
		if err := server.Stop("fast"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pgx.Connect(t.Context(), server.DSN()); err == nil {
		t.Error("it took a connection")
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	connect(t, server.DSN())
	for range 2 {
		if err := server.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := server.Start(); err == nil {
		t.Error("a closed server was started")
	}
}

func TestADurableServerAndItsSettings(t *testing.T) {
	t.Parallel()
	server, err := testdb.Start(t.Context(), testdb.Config{
		Durable:  true,
		Settings: map[string]string{"max_connections": "17", "application_name": `it's a \ test`},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	conn := connect(t, server.DSN())
	for setting, want := range map[string]string{
		"fsync": "on", "full_page_writes": "on", "max_connections": "17", "application_name": `it's a \ test`,
	} {
		var got string
		if err := conn.QueryRow(t.Context(), "SELECT current_setting($1)", setting).Scan(&got); err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%s is %q, want %q", setting, got, want)
		}
	}
}

func TestAServerThatCannotStartShowsItsLog(t *testing.T) {
	t.Parallel()
	server, err := testdb.Start(t.Context(), testdb.Config{Settings: map[string]string{"no_such_setting": "1"}})
	if err == nil {
		server.Close()
		t.Fatal("it started")
	}
	if !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("the error does not show why: %v", err)
	}
}

func TestAServerWaitsForItsPortToBeFree(t *testing.T) {
	t.Parallel()
	server := testdb.StartServer(t, testdb.Config{})
	u, err := url.Parse(server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Stop("fast"); err != nil {
		t.Fatal(err)
	}
	thief, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(300*time.Millisecond, func() { thief.Close() })
	defer timer.Stop()
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	connect(t, server.DSN())
}
