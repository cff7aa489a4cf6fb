//go:build !unix

package testdb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// Servers are started on Unix only. What follows lets the rest compile; the first
// call, serverAccount, says no.

var (
	errExited   = errors.New("the server exited")
	errPlatform = fmt.Errorf("%w that this package can start on this system", errNoPostgres)
)

type (
	account  struct{}
	process  struct{}
	watchdog struct{}
)

func serverAccount() (account, error)         { return account{}, errPlatform }
func (account) own(string) error              { return errPlatform }
func (account) tempDir() string               { return os.TempDir() }
func startWatchdog(string) (*watchdog, error) { return nil, errPlatform }
func (*watchdog) dismiss()                    {}
func (*watchdog) alarm()                      {}

func (*Server) launch(context.Context) error                 { return errPlatform }
func (*Server) run(context.Context, string, ...string) error { return errPlatform }
func (*process) stop(string, time.Duration) error            { return errPlatform }
func (*process) exited() bool                                { return true }
