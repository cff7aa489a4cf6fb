//go:build unix

package testdb

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// These tests change variables of the package, so they are not parallel.

func TestADownloadIsMadeOnceAndKept(t *testing.T) {
	isolate(t)
	archive := archiveOf(t, serverPrograms)
	var fetched int
	serve(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".sha256") {
			fmt.Fprintf(w, "%x", sha256.Sum256(archive))
			return
		}
		fetched++
		w.Write(archive)
	})
	var dirs []string
	for range 2 {
		dir, err := binaries(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, dir)
	}
	if dirs[0] != dirs[1] || !complete(dirs[0]) || fetched != 1 {
		t.Errorf("fetched %d times to %q", fetched, dirs)
	}
	entries, err := os.ReadDir(filepath.Dir(filepath.Dir(dirs[0])))
	if err != nil || len(entries) != 1 {
		t.Errorf("the cache has %v (%v)", entries, err)
	}
}

func TestAFailedDownloadMeansNoPostgreSQL(t *testing.T) {
	isolate(t)
	serve(t, http.NotFound)
	_, err := binaries(t.Context())
	if !errors.Is(err, errNoPostgres) {
		t.Errorf("error %v", err)
	}
	if strings.Contains(fmt.Sprint(err), "\n") {
		t.Errorf("more than one line: %v", err)
	}
}

// isolate gives the test a cache of its own, and PostgreSQL by download only.
func isolate(t *testing.T) {
	t.Helper()
	cache := t.TempDir()
	before := rootCache
	t.Cleanup(func() { rootCache = before })
	rootCache = cache
	t.Setenv("HOME", cache) // where macOS has the cache
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("TMPDIR", t.TempDir()) // the library leaves a log there
	t.Setenv(envBinaries, "download")
}

// serve has a handler stand in for the repository.
func serve(t *testing.T, handler http.HandlerFunc) {
	t.Helper()
	server := httptest.NewServer(handler)
	before := repository
	t.Cleanup(func() { repository = before; server.Close() })
	repository = server.URL
}

// archiveOf returns what the repository has: a zip file with a tar.xz file, here
// with programs that do nothing.
func archiveOf(t *testing.T, programs []string) []byte {
	t.Helper()
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range programs {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	inner, err := exec.Command("tar", "-C", dir, "-cJf", "-", "bin").Output()
	if err != nil {
		t.Skipf("tar with xz: %v", err)
	}
	var archive bytes.Buffer
	outer := zip.NewWriter(&archive)
	file, err := outer.Create("postgres.txz")
	if err != nil {
		t.Fatal(err)
	}
	file.Write(inner)
	if err := outer.Close(); err != nil {
		t.Fatal(err)
	}
	return archive.Bytes()
}
