package wakeup_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/letterbox-go/letterbox/inbox/inboxtest"
	"github.com/letterbox-go/letterbox/wakeup"
)

// pgbouncer starts one in front of a database and returns the URL through it.
func pgbouncer(t *testing.T, dsn, mode string) string {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		t.Skip("no pgbouncer on PATH")
	}
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	_ = listener.Close()
	dir, err := os.MkdirTemp("", "letterbox-pgbouncer-") // t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "pgbouncer.ini")
	// One server connection is the hardest case: whatever is sent meets it.
	text := fmt.Sprintf(`[databases]
* = host=%s port=%s user=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
unix_socket_dir =
auth_type = any
pool_mode = %s
default_pool_size = %d
ignore_startup_parameters = extra_float_digits
`, u.Hostname(), u.Port(), u.User.Username(), port, mode, map[string]int{"transaction": 1, "session": 10}[mode])
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{file}
	if os.Geteuid() == 0 {
		args = []string{"-u", "nobody", file}
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	var output buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(output.String())
		}
	})
	u.Host = net.JoinHostPort("127.0.0.1", port)
	inboxtest.Eventually(t, "pgbouncer answers", func() bool {
		conn, err := pgx.Connect(t.Context(), u.String())
		if err != nil {
			return false
		}
		_ = conn.Close(t.Context())
		return true
	})
	return u.String()
}

func TestPgBouncer(t *testing.T) {
	t.Parallel()
	t.Run("in transaction mode is found out", func(t *testing.T) {
		t.Parallel()
		dsn := migrated(t)
		log := &buffer{}
		w := openWaker(t, pgbouncer(t, dsn, "transaction"), wakeup.Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
		listening(t, w)
		inboxtest.Eventually(t, "there is a warning", func() bool { return strings.Contains(log.String(), "notifications do not arrive") })
		if got := strings.Count(log.String(), "\n"); got != 1 {
			t.Errorf("%d lines, want one:\n%s", got, log)
		}
	})
	t.Run("in session mode works, also as the way that notifications are sent", func(t *testing.T) {
		t.Parallel()
		dsn := migrated(t)
		through := pgbouncer(t, dsn, "session")
		w, other := openWaker(t, through, wakeup.Config{}), openWaker(t, through, wakeup.Config{})
		count := listening(t, w)
		other.Notify(table)
		inboxtest.Eventually(t, "a notification wakes", func() bool { return count.Load() > 0 })
	})
	t.Run("in transaction mode may be the way that notifications are sent", func(t *testing.T) {
		t.Parallel()
		dsn := migrated(t)
		w, other := openWaker(t, dsn, wakeup.Config{}), openWaker(t, pgbouncer(t, dsn, "transaction"), wakeup.Config{})
		count := listening(t, w)
		other.Notify(table)
		inboxtest.Eventually(t, "a notification wakes", func() bool { return count.Load() > 0 })
	})
}

// buffer is one for several writers.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
