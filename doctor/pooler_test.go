//go:build unix

package doctor_test

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"testing"

	"github.com/letterbox-go/letterbox/doctor"
	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

const pgbouncerConfig = `
[databases]
* = host=%s port=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
unix_socket_dir =
auth_type = trust
auth_file = %s
pool_mode = %s
server_idle_timeout = 1
`

// pgbouncerScript ends the pooler with the pipe that only the test holds.
const pgbouncerScript = `
"$@" &
pid=$!
read -r _
kill -KILL $pid
`

// startPooler starts a PgBouncer before the server of dsn and returns its address.
func startPooler(t *testing.T, dsn, mode string) string {
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
	for file, text := range map[string]string{
		users:  fmt.Sprintf("%q \"\"\n", server.User.Username()),
		config: fmt.Sprintf(pgbouncerConfig, server.Hostname(), server.Port(), port, users, mode),
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	args := []string{"-c", pgbouncerScript, "pgbouncer", program, "-q"}
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
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = input.Close()
		_ = cmd.Wait()
	})
	eventually(t, func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return address
}

func TestPoolerInTransactionMode(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string][]string{"transaction": {"pooler warning"}, "session": nil} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			dsn := testdb.Postgres(t)
			direct, err := url.Parse(dsn)
			if err != nil {
				t.Fatal(err)
			}
			direct.Host = startPooler(t, dsn, mode)
			db, err := testdb.OpenPGX(direct.String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			p := open(t, db, inbox.Config{})
			report := p.finds(t, doctor.Config{}, want...)
			if len(want) > 0 {
				p.evidence(t, report, "pooler", "LISTEN", "backends")
			}
		})
	}
}
