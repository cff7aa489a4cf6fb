//go:build unix

package inbox_test

import (
	"bufio"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox/inboxtest"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

// pgbouncerConfig pools by transaction. Nothing needs ignore_startup_parameters:
// pgx and pgdriver send no start-up parameter that PgBouncer does not know, as
// long as the URL names none. See https://www.pgbouncer.org/config.html
const pgbouncerConfig = `
[databases]
* = host=%s port=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
unix_socket_dir =
auth_type = trust
auth_file = %s
pool_mode = transaction
max_client_conn = 2000
default_pool_size = 20
server_idle_timeout = 1
server_lifetime = 60
autodb_idle_timeout = 5
`

// pgbouncerScript ends the pooler with the pipe that only the test holds, however
// the test ends.
const pgbouncerScript = `
"$@" &
pid=$!
read -r _
kill -KILL $pid
`

// pooler is a PgBouncer in transaction mode.
type pooler struct{ address string }

// startPooler starts a PgBouncer in front of the server of dsn, or skips the test.
func startPooler(t *testing.T, dsn string) pooler {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		if program, err = exec.LookPath("/usr/sbin/pgbouncer"); err != nil {
			t.Skip("install PgBouncer (Debian: apt-get install pgbouncer) to run this test")
		}
	}
	server, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	_, port, _ := net.SplitHostPort(address)

	dir, err := os.MkdirTemp("", "letterbox-pgbouncer-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	users, config := filepath.Join(dir, "users"), filepath.Join(dir, "pgbouncer.ini")
	password, _ := server.User.Password()
	write := func(name, text string) {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(users, fmt.Sprintf("%q %q\n", server.User.Username(), password))
	write(config, fmt.Sprintf(pgbouncerConfig, server.Hostname(), server.Port(), port, users))
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	args := []string{"-c", pgbouncerScript, "pgbouncer", program}
	if os.Geteuid() == 0 { // which it refuses to run as
		name := "nobody"
		if _, err := user.Lookup("postgres"); err == nil {
			name = "postgres"
		}
		args = append(args, "-u", name)
	}
	cmd := exec.Command("/bin/sh", append(args, config)...)
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var lines syncBuffer
	read := make(chan struct{})
	go func() {
		defer close(read)
		for scanner := bufio.NewScanner(log); scanner.Scan(); {
			_, _ = lines.Write(append(scanner.Bytes(), '\n'))
		}
	}()
	t.Cleanup(func() {
		_ = input.Close()
		<-read
		_ = cmd.Wait()
		if t.Failed() {
			text := lines.String()
			t.Logf("the end of PgBouncer's log:\n%s", text[max(0, len(text)-4000):])
		}
	})
	deadline := time.Now().Add(10 * time.Second)
	for {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			_ = conn.Close()
			return pooler{address}
		}
		if time.Now().After(deadline) {
			t.Fatalf("PgBouncer does not answer: %v\n%s", err, lines.String())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// through leads a URL through the pooler.
func (p pooler) through(t *testing.T, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = p.address
	return u.String()
}

// The contract holds behind a pooler in transaction mode, where a session is
// somebody else's after each transaction.
func TestContractThroughPgBouncer(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the contract takes a minute; it runs without a pooler as well")
	}
	pooler := startPooler(t, testdb.Postgres(t))
	for name, open := range map[string]func(string) (*bun.DB, error){"pgx": testdb.OpenPGX, "pgdriver": testdb.OpenPGDriver} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inboxtest.Run(t, func(t *testing.T) *bun.DB {
				db, err := open(pooler.through(t, testdb.Postgres(t)))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = db.Close() })
				return db
			})
		})
	}
}
