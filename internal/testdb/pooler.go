package testdb

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"testing"
	"time"
)

// PoolerConfig says how a PgBouncer pools.
type PoolerConfig struct {
	Mode string // "transaction" (the default) or "session"
	Size int    // server connections per database. Default 20
}

// Pooler is a PgBouncer in front of a server.
type Pooler struct{ address string }

// poolerSettings need no ignore_startup_parameters: pgx and pgdriver send none
// that PgBouncer does not know, as long as the URL names none.
// See https://www.pgbouncer.org/config.html
const poolerSettings = `
[databases]
* = host=%s port=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
unix_socket_dir =
auth_type = trust
auth_file = %s
pool_mode = %s
max_client_conn = 2000
default_pool_size = %d
server_idle_timeout = 1
server_lifetime = 60
autodb_idle_timeout = 5
`

// poolerScript ends the pooler with the pipe that only the test holds, however
// the test ends.
const poolerScript = `
"$@" &
pid=$!
read -r _
kill -KILL $pid
`

// StartPooler starts a PgBouncer in front of the server of dsn. It skips the test
// where PgBouncer is not installed. It is stopped when the test ends.
func StartPooler(t testing.TB, dsn string, config PoolerConfig) Pooler {
	t.Helper()
	program := findPooler(t)
	if config.Mode == "" {
		config.Mode = "transaction"
	}
	if config.Size == 0 {
		config.Size = 20
	}
	server, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "letterbox-pgbouncer-") // t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	users, file, log := filepath.Join(dir, "users"), filepath.Join(dir, "pgbouncer.ini"), filepath.Join(dir, "log")
	password, _ := server.User.Password()
	for name, text := range map[string]string{
		users: fmt.Sprintf("%q %q\n", server.User.Username(), password),
		file: fmt.Sprintf(poolerSettings, server.Hostname(), server.Port(), fmt.Sprint(port), users,
			config.Mode, config.Size),
	} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	args := []string{"-c", poolerScript, "pgbouncer", program}
	if os.Geteuid() == 0 { // which it refuses to run as
		name := "nobody"
		if _, err := user.Lookup("postgres"); err == nil {
			name = "postgres"
		}
		args = append(args, "-u", name)
	}
	cmd := exec.Command("/bin/sh", append(args, file)...)
	output, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	cmd.Stdout, cmd.Stderr = output, output
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = input.Close()
		_ = cmd.Wait()
		if text, err := os.ReadFile(log); t.Failed() && err == nil {
			t.Logf("the end of PgBouncer's log:\n%s", text[max(0, len(text)-4000):])
		}
	})
	p := Pooler{net.JoinHostPort("127.0.0.1", fmt.Sprint(port))}
	p.await(t)
	return p
}

func findPooler(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if program, err := exec.LookPath(name); err == nil {
			return program
		}
	}
	t.Skip("install PgBouncer (Debian: apt-get install pgbouncer) to run this test")
	return ""
}

func (p Pooler) await(t testing.TB) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		conn, err := net.DialTimeout("tcp", p.address, time.Second)
		if err == nil {
			_ = conn.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("PgBouncer does not answer: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Through leads the URL of a database of that server through the pooler.
func (p Pooler) Through(t testing.TB, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = p.address
	return u.String()
}
