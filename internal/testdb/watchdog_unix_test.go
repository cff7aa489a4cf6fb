//go:build unix

package testdb_test

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestNoServerOutlivesItsProcess(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"pass", "fail", "panic", "exit", "hang"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			temp := openTempDir(t)
			cmd := child(t, mode, "TMPDIR="+temp)
			places := strings.Fields(start(t, cmd))
			if len(places) != 4 {
				t.Fatalf("the child said %q", places)
			}
			for _, dir := range []string{places[0], places[2]} {
				if !strings.HasPrefix(dir, temp) {
					t.Errorf("data is in %s", dir)
				}
			}
			if mode == "hang" {
				if left := remains(t, temp); left == "" {
					t.Error("nothing is there while the child lives")
				}
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			cmd.Wait()
			eventually(t, func() string { return remains(t, temp) })
		})
	}
}

// The process dies while it copies, runs initdb, or starts the server.
func TestADeathDuringTheStartLeavesNothing(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes ten seconds")
	}
	for name, env := range map[string][]string{
		"with a template":    nil,
		"without a template": {envNoCache + "=1", "XDG_CACHE_HOME=/dev/null/none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			temp := openTempDir(t)
			for range 8 {
				cmd := child(t, "hang", append(env, "TMPDIR="+temp)...)
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				eventually(t, func() string {
					if remains(t, temp) == "" {
						return "it made no directory"
					}
					return ""
				})
				time.Sleep(rand.N(1500 * time.Millisecond)) // wherever that may be
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				cmd.Wait()
				eventually(t, func() string { return remains(t, temp) })
			}
		})
	}
}

// openTempDir is like t.TempDir, but the server's user can get at it.
func openTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "letterbox-testdb-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// remains tells what there is in a directory, and which processes of a server
// are at work there.
func remains(t *testing.T, dir string) string {
	t.Helper()
	entries, err := filepath.Glob(filepath.Join(dir, "letterbox-testdb-*"))
	if err != nil {
		t.Fatal(err)
	}
	output, err := exec.Command("ps", "-A", "-ww", "-o", "args").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(output)) {
		if strings.Contains(line, dir) {
			entries = append(entries, strings.TrimSpace(line))
		}
	}
	return strings.Join(entries, "\n")
}
