package testdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// serverPrograms are what a directory must hold to be of use.
var serverPrograms = []string{"initdb", "postgres", "pg_ctl"}

// installations are where packages put the programs outside of PATH, as patterns
// of [filepath.Glob]; among the matches of one pattern the newest version wins.
var installations = []string{
	"/usr/lib/postgresql/*/bin",                          // Debian, Ubuntu
	"/usr/pgsql-*/bin",                                   // PGDG on Fedora, RHEL
	"/usr/bin",                                           // Fedora, Arch, Alpine
	"/usr/libexec/postgresql*",                           // Alpine
	"/opt/homebrew/opt/postgresql@*/bin",                 // Homebrew on Apple silicon
	"/usr/local/opt/postgresql@*/bin",                    // Homebrew on Intel
	"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",    // Homebrew on Linux
	"/Applications/Postgres.app/Contents/Versions/*/bin", // Postgres.app
	"/usr/local/pgsql/bin",                               // built from source
}

// FindBinaries returns the directory that holds PostgreSQL's server programs
// (initdb, postgres, pg_ctl, and usually psql and pgbench): the one that
// LETTERBOX_TEST_PGBIN names, else the one on PATH, else where Debian, Fedora,
// Homebrew and others install them, the newest version first. It downloads
// nothing.
func FindBinaries() (dir string, ok bool) {
	switch dir := os.Getenv(envBinaries); dir {
	case "":
	case "none", "download":
		return "", false
	default:
		return dir, complete(dir)
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		// Behind a link in /usr/local/bin there are more programs.
		if real, err := filepath.EvalSymlinks(path); err == nil && complete(filepath.Dir(real)) {
			return filepath.Dir(real), true
		}
		if complete(filepath.Dir(path)) {
			return filepath.Dir(path), true
		}
	}
	return newest(installations)
}

// binaries returns the directory of the server programs, downloaded if need be.
// The error is errNoPostgres if there are none.
func binaries(ctx context.Context) (string, error) {
	choice := os.Getenv(envBinaries)
	if dir, ok := FindBinaries(); ok {
		return dir, nil
	}
	switch choice {
	case "none":
		return "", fmt.Errorf("%w: %s is none", errNoPostgres, envBinaries)
	case "", "download":
	default:
		return "", fmt.Errorf("%s: no PostgreSQL server programs in %s", envBinaries, choice)
	}
	dir, err := download(ctx)
	if err != nil {
		return "", fmt.Errorf("%w found, nor downloaded: %w", errNoPostgres, err)
	}
	return dir, nil
}

// newest returns the first pattern's complete directory with the highest version.
func newest(patterns []string) (string, bool) {
	for _, pattern := range patterns {
		matches, err := filepath.Glob(pattern)
		if err != nil {
			continue
		}
		slices.SortStableFunc(matches, func(a, b string) int {
			return cmp.Compare(version(b), version(a))
		})
		if i := slices.IndexFunc(matches, complete); i >= 0 {
			return matches[i], true
		}
	}
	return "", false
}

var numbers = regexp.MustCompile(`[0-9]+(\.[0-9]+)?`)

// version returns the last number in a path, 0 if there is none.
func version(path string) float64 {
	all := numbers.FindAllString(path, -1)
	if len(all) == 0 {
		return 0
	}
	v, _ := strconv.ParseFloat(all[len(all)-1], 64) // the pattern allows nothing else
	return v
}

// complete reports whether dir holds every server program.
func complete(dir string) bool {
	for _, name := range serverPrograms {
		if _, err := exec.LookPath(filepath.Join(dir, name)); err != nil && !errors.Is(err, exec.ErrDot) {
			return false
		}
	}
	return true
}
