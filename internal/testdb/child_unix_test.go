//go:build unix

package testdb_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

// envChild makes TestChild, in a process of its own, do one of these:
//
//	database  take a database and say its URL
//	exit, panic, fail, pass, hang
//	          take a database and a private server, say where they are, and end
//	          so, or not at all
//	query URL connect, say so, and sit in a query
const envChild = "LETTERBOX_TESTDB_CHILD"

// envNoCache gives a child process no cache directory, for root; others have
// XDG_CACHE_HOME for that.
const envNoCache = "LETTERBOX_TESTDB_NOCACHE"

func TestChild(t *testing.T) {
	mode, argument, _ := strings.Cut(os.Getenv(envChild), " ")
	switch mode {
	case "":
		t.Skip("not a child process")
	case "database":
		fmt.Println("child:", testdb.Postgres(t))
	case "query":
		conn := connect(t, argument)
		if err := conn.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		fmt.Println("child: connected")
		_, err := conn.Exec(t.Context(), "SELECT pg_sleep(600)")
		t.Fatal(err)
	default:
		shared := whereabouts(t, testdb.Postgres(t))
		private, err := testdb.Start(t.Context(), testdb.Config{}) // never closed
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("child:", shared, whereabouts(t, private.DSN()))
		end(t, mode)
	}
}

// end ends the child process in the way of its mode.
func end(t *testing.T, mode string) {
	switch mode {
	case "exit":
		os.Exit(3)
	case "panic":
		panic("as told")
	case "fail":
		t.FailNow()
	case "hang":
		select {}
	}
}

// whereabouts returns the data directory and the postmaster's process id.
func whereabouts(t *testing.T, dsn string) string {
	t.Helper()
	var dir, lockFile string
	err := connect(t, dsn).QueryRow(t.Context(),
		"SELECT current_setting('data_directory'), pg_read_file('postmaster.pid')").Scan(&dir, &lockFile)
	if err != nil {
		t.Fatal(err)
	}
	pid, _, _ := strings.Cut(lockFile, "\n")
	return dir + " " + pid
}

// child is this test binary once more, running only TestChild.
func child(t *testing.T, mode string, env ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, self, "-test.run=^TestChild$", "-test.v")
	cmd.Env = append(os.Environ(), "LETTERBOX_TEST_POSTGRES=", "CI=", "LETTERBOX_REQUIRE_POSTGRES=", envChild+"="+mode)
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

// start starts a child and returns what it says of itself.
func start(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	lines := bufio.NewScanner(io.TeeReader(output, &all))
	for lines.Scan() {
		if said, ok := strings.CutPrefix(lines.Text(), "child: "); ok {
			return said
		}
	}
	cmd.Wait()
	t.Fatalf("the child said nothing:\n%s", all.String())
	return ""
}

// eventually waits for a condition, which says what is still wrong.
func eventually(t *testing.T, condition func() (wrong string)) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		wrong := condition()
		if wrong == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(wrong)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestTheServerSurvivesTheDeathOfItsClients(t *testing.T) {
	t.Parallel()
	dsn := testdb.Postgres(t)
	conn := connect(t, dsn)
	for range 3 {
		client := child(t, "query "+dsn)
		start(t, client)
		if err := client.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		client.Wait()
		if err := conn.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := pgx.Connect(t.Context(), dsn); err != nil {
			t.Fatal(err)
		}
	}
}
