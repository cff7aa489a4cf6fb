//go:build unix

package testdb

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is the user that the server runs as.
type account struct {
	credential *syscall.Credential // nil: the user of this process
}

// serverAccount returns the user of this process. PostgreSQL refuses root: then
// it is the user postgres, or nobody.
func serverAccount() (account, error) {
	if os.Geteuid() != 0 {
		return account{}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(found.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(found.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return account{}, fmt.Errorf("read ids of user %s: %w", name, err)
		}
		return account{&syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
	}
	return account{}, errors.New("PostgreSQL does not run as root, and there is no user postgres or nobody to run it as")
}

// own gives a directory and all that is in it to the account.
func (a account) own(dir string) error {
	if a.credential == nil {
		return nil
	}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(a.credential.Uid), int(a.credential.Gid))
	})
	if err != nil {
		return fmt.Errorf("change owner: %w", err)
	}
	return nil
}

// tempDir returns a directory for temporary ones that the account can get at:
// the system's, or /tmp if root's own is private.
func (a account) tempDir() string {
	dir := os.TempDir()
	if a.credential == nil {
		return dir
	}
	for at := dir; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err != nil || info.Mode()&0o001 == 0 {
			return "/tmp"
		}
		if at == filepath.Dir(at) {
			return dir
		}
	}
}
