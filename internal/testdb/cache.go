package testdb

import (
	"fmt"
	"os"
	"path/filepath"
)

// rootCache is the cache of root, whose own one the server's user cannot enter.
var rootCache = "/var/cache/letterbox-testdb" // a variable for tests

// cacheDir returns the directory for what is kept between runs (downloaded
// programs, templates), made if need be. Deleting it is safe when no test runs.
func cacheDir() (string, error) {
	dir := rootCache
	if os.Geteuid() != 0 {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("find cache directory: %w", err)
		}
		dir = filepath.Join(user, "letterbox-testdb")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make cache directory: %w", err)
	}
	return dir, nil
}
