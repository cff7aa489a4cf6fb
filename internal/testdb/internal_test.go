package testdb

import (
	"os"
	"path/filepath"
	"testing"
)

func init() {
	// Children of the tests ask for a machine without a cache.
	if os.Getenv("LETTERBOX_TESTDB_NOCACHE") != "" {
		rootCache = "/dev/null/none"
	}
}

func TestTheNewestCompleteInstallationIsTaken(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	install := func(version string, programs ...string) string {
		dir := filepath.Join(root, "postgresql", version, "bin")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range programs {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	patterns := []string{filepath.Join(root, "elsewhere", "*"), filepath.Join(root, "postgresql", "*", "bin")}
	if dir, ok := newest(patterns); ok {
		t.Errorf("found %s", dir)
	}
	install("9.6", serverPrograms...)
	want := install("17", serverPrograms...)
	install("15", serverPrograms...)
	install("18", "pg_ctl") // the client's package only
	if dir, ok := newest(patterns); !ok || dir != want {
		t.Errorf("found %s, want %s", dir, want)
	}
}
