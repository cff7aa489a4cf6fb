//go:build unix

package testdb_test

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/letterbox-go/letterbox/internal/testdb"
)

func TestAServerInTheEnvironmentComesFirst(t *testing.T) {
	t.Parallel()
	server := testdb.StartServer(t, testdb.Config{})
	// Found even where there are no binaries.
	cmd := child(t, "database", "LETTERBOX_TEST_POSTGRES="+server.DSN(), "LETTERBOX_TEST_PGBIN=none", "CI=1")
	got, err := url.Parse(start(t, cmd))
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	want, err := url.Parse(server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	if got.Host != want.Host {
		t.Errorf("database is on %s, want %s", got.Host, want.Host)
	}
	var left int
	err = connect(t, server.DSN()).QueryRow(t.Context(),
		"SELECT count(*) FROM pg_database WHERE datname LIKE 'letterbox%'").Scan(&left)
	if err != nil || left != 0 {
		t.Errorf("%d databases are left (%v)", left, err)
	}
}

func TestABadURLInTheEnvironmentFails(t *testing.T) {
	t.Parallel()
	cmd := child(t, "database", "LETTERBOX_TEST_POSTGRES=host=localhost password=hush")
	output, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(output), "LETTERBOX_TEST_POSTGRES") {
		t.Errorf("%v:\n%s", err, output)
	}
	if strings.Contains(string(output), "hush") {
		t.Errorf("the password is in the output:\n%s", output)
	}
}

func TestWithoutPostgreSQLTestsAreSkippedWithOneLine(t *testing.T) {
	t.Parallel()
	output, err := child(t, "database", "LETTERBOX_TEST_PGBIN=none").CombinedOutput()
	if err != nil {
		t.Errorf("it failed: %v", err)
	}
	if !strings.Contains(string(output), "--- SKIP: TestChild") {
		t.Errorf("it was not skipped:\n%s", output)
	}
	var lines int
	for line := range strings.Lines(string(output)) {
		if strings.Contains(line, "install PostgreSQL") && strings.Contains(line, "LETTERBOX_TEST_POSTGRES") {
			lines++
		}
	}
	if lines != 1 {
		t.Errorf("%d lines say what to do:\n%s", lines, output)
	}
}

func TestWithoutPostgreSQLTestsFailWhereItIsRequired(t *testing.T) {
	t.Parallel()
	for _, env := range []string{"CI", "LETTERBOX_REQUIRE_POSTGRES"} {
		output, err := child(t, "database", "LETTERBOX_TEST_PGBIN=none", env+"=true").CombinedOutput()
		if err == nil || !strings.Contains(string(output), "--- FAIL: TestChild") {
			t.Errorf("%s: it did not fail (%v):\n%s", env, err, output)
		}
	}
}

func TestFindBinariesTakesPATHUnlessToldOtherwise(t *testing.T) {
	onPath, other := fakeBinaries(t), fakeBinaries(t)
	t.Setenv("PATH", onPath+string(filepath.ListSeparator)+os.Getenv("PATH"))
	for _, test := range []struct {
		env, dir string
		ok       bool
	}{
		{"", onPath, true},
		{other, other, true},
		{"none", "", false},
		{"download", "", false},
		{t.TempDir(), "", false},
	} {
		t.Setenv("LETTERBOX_TEST_PGBIN", test.env)
		dir, ok := testdb.FindBinaries()
		if ok != test.ok || ok && dir != test.dir {
			t.Errorf("%q: found %q, %v; want %q, %v", test.env, dir, ok, test.dir, test.ok)
		}
	}
}

// fakeBinaries returns a directory with programs of the right names.
func fakeBinaries(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"initdb", "postgres", "pg_ctl"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// As root the rest of the tests cover the switch to another user; this one is the
// ordinary user's case.
func TestItWorksWithoutRoot(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("all tests run without root")
	}
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skip(err)
	}
	temp := openTempDir(t)
	cmd := child(t, "pass", "TMPDIR="+temp, "HOME=/nonexistent", "XDG_CACHE_HOME=")
	// go test builds into a directory that is private to root.
	self := filepath.Join(temp, "testdb.test")
	binary, err := os.ReadFile(cmd.Path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(self, binary, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(temp, 0o777); err != nil {
		t.Fatal(err)
	}
	cmd.Path, cmd.Args = setpriv, append([]string{"setpriv", "--reuid=nobody", "--clear-groups", self}, cmd.Args[1:]...)
	cmd.Dir = "/"
	places := strings.Fields(start(t, cmd))
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if len(places) != 4 || !strings.HasPrefix(places[0], temp) {
		t.Errorf("the child said %q", places)
	}
	eventually(t, func() string { return remains(t, temp) })
}
