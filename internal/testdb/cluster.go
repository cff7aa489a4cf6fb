package testdb

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// initdbArgs make a cluster that trusts everybody. The locale is C: order by
// bytes, the same on every machine.
var initdbArgs = []string{"--no-sync", "-A", "trust", "-U", superuser, "-E", "UTF8", "--locale=C"}

// baseSettings are in the configuration file of every server. The time zone is
// one where a time that lost its zone shows.
var baseSettings = map[string]string{
	"autovacuum":              "on",
	"listen_addresses":        "127.0.0.1",
	"max_connections":         "300",
	"shared_buffers":          "128MB",
	"synchronous_commit":      "on",
	"timezone":                "America/Sao_Paulo",
	"unix_socket_directories": "",
}

// settings returns the configuration: the base, then durability, then the
// caller's own.
func (c Config) settings() map[string]string {
	all := maps.Clone(baseSettings)
	durable := "off"
	if c.Durable {
		durable = "on"
	}
	all["fsync"] = durable
	all["full_page_writes"] = durable
	maps.Copy(all, c.Settings)
	return all
}

// configure appends settings to the configuration file of a cluster.
func configure(data string, settings map[string]string) error {
	var text strings.Builder
	quote := strings.NewReplacer(`'`, `''`, `\`, `\\`)
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&text, "%s = '%s'\n", name, quote.Replace(settings[name]))
	}
	file, err := os.OpenFile(filepath.Join(data, "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("configure: %w", err)
	}
	_, err = file.WriteString(text.String())
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("configure: %w", err)
	}
	return nil
}

// makeCluster makes a fresh cluster in the directory data: a copy of the
// template where there is one (0.1 s), else by initdb (1 s), which then becomes
// the template.
func (s *Server) makeCluster(ctx context.Context, data string) error {
	template, err := s.template()
	if err != nil {
		return s.initdb(ctx, data) // no cache directory: no template
	}
	if err := copyTemplate(template, data); err == nil {
		return s.account.own(data)
	}
	if err := os.RemoveAll(data); err != nil {
		return fmt.Errorf("make cluster: %w", err)
	}
	if err := s.initdb(ctx, data); err != nil {
		return err
	}
	// Without the template the next start is slower, and nothing else.
	_ = storeTemplate(data, template)
	return nil
}

func (s *Server) initdb(ctx context.Context, data string) error {
	if err := s.run(ctx, "initdb", append(slices.Clone(initdbArgs), "-D", data)...); err != nil {
		return fmt.Errorf("initdb: %w", err)
	}
	return nil
}

// template returns where the template of this server's clusters is kept, by all
// that goes into them. It is written once, whole, and only read from then on.
func (s *Server) template() (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	program := filepath.Join(s.bin, "postgres")
	info, err := os.Stat(program)
	if err != nil {
		return "", fmt.Errorf("find template: %w", err)
	}
	key := sha256.Sum256(fmt.Appendln(nil, os.Geteuid(), program, info.Size(), info.ModTime().UnixNano(), initdbArgs))
	return filepath.Join(cache, fmt.Sprintf("template-%x", key[:8])), nil
}

func copyTemplate(template, data string) error {
	if _, err := os.Stat(template); err != nil {
		return fmt.Errorf("copy template: %w", err)
	}
	// The server insists on the mode of this directory and no other.
	if err := os.Mkdir(data, 0o700); err != nil {
		return fmt.Errorf("copy template: %w", err)
	}
	if err := os.CopyFS(data, os.DirFS(template)); err != nil {
		return fmt.Errorf("copy template: %w", err)
	}
	return nil
}

// storeTemplate makes the cluster in data, whose server has not been started,
// the template. It is copied aside, synced and renamed: others see all of it or
// nothing, even after a power failure, and where two store it the first wins.
func storeTemplate(data, template string) error {
	removeStale(template + ".*")
	tmp, err := os.MkdirTemp(filepath.Dir(template), filepath.Base(template)+".")
	if err != nil {
		return fmt.Errorf("store template: %w", err)
	}
	defer os.RemoveAll(tmp)
	if err := os.CopyFS(tmp, os.DirFS(data)); err != nil {
		return fmt.Errorf("store template: %w", err)
	}
	if err := syncTree(tmp); err != nil {
		return fmt.Errorf("store template: %w", err)
	}
	if err := os.Rename(tmp, template); err != nil {
		return fmt.Errorf("store template: %w", err)
	}
	return nil
}

// removeStale removes what processes left that were killed while they stored.
func removeStale(pattern string) {
	matches, err := filepath.Glob(pattern)
	if err != nil {
		return
	}
	for _, match := range matches {
		if info, err := os.Stat(match); err == nil && time.Since(info.ModTime()) > time.Hour {
			os.RemoveAll(match)
		}
	}
}

func syncTree(root string) error {
	return filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		return errors.Join(file.Sync(), file.Close())
	})
}
