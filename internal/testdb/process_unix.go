//go:build unix

package testdb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// errExited says that the server ended instead of becoming ready.
var errExited = errors.New("the server exited")

// readyPoll is how often the server is looked at until it is ready.
const readyPoll = 5 * time.Millisecond

// stopSignals are the postmaster's, by the names of pg_ctl's modes. See
// https://www.postgresql.org/docs/current/server-shutdown.html
var stopSignals = map[string]os.Signal{
	"smart":     syscall.SIGTERM,
	"fast":      syscall.SIGINT,
	"immediate": syscall.SIGQUIT,
	"kill":      syscall.SIGKILL,
}

// process is a child process that somebody waits for.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
}

// launch starts the postmaster and waits until it takes connections. The error is
// errExited if it ended by itself.
func (s *Server) launch(ctx context.Context) error {
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	defer log.Close()
	cmd := s.command(context.Background(), "postgres", "-D", s.data(), "-p", strconv.Itoa(s.port))
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start postgres: %w", err)
	}
	proc := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(proc.done)
		cmd.Wait() // how it ended is in its log
	}()
	s.proc = proc
	for !s.ready() {
		select {
		case <-proc.done:
			s.proc = nil
			return errExited
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("wait until ready: %w", ctx.Err()), s.stop("immediate"))
		case <-time.After(readyPoll):
		}
	}
	return nil
}

// ready reports whether the postmaster takes connections: the eighth line of its
// lock file says so. Unlike a connection, that cannot meet another server.
func (s *Server) ready() bool {
	text, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	if err != nil {
		return false
	}
	lines := strings.Split(string(text), "\n")
	if len(lines) <= 7 || lines[0] != strconv.Itoa(s.proc.cmd.Process.Pid) {
		return false
	}
	state := strings.TrimSpace(lines[7])
	return state == "ready" || state == "standby" // which reads only
}

// run runs a server program to its end. What it prints is in the error if it
// fails.
func (s *Server) run(ctx context.Context, name string, args ...string) error {
	cmd := s.command(ctx, name, args...)
	output, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(output)))
	}
	return nil
}

// command is a server program, run by the server's user, in the watchdog's
// process group, and where that user may be (its own directory).
func (s *Server) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	cmd.Env = serverEnv()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: s.dog.group(), Credential: s.account.credential}
	return cmd
}

// serverEnv is the environment less what would reconfigure a server. Messages
// are English; without LC_ALL, macOS has the postmaster start threads and refuse.
func serverEnv() []string {
	var env []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "PG") && !strings.HasPrefix(entry, "LC_") {
			env = append(env, entry)
		}
	}
	return append(env, "LC_ALL=C")
}

// stop signals the postmaster and waits for its end.
func (p *process) stop(mode string, timeout time.Duration) error {
	signal, ok := stopSignals[mode]
	if !ok {
		return fmt.Errorf("no mode %q: it is smart, fast, immediate or kill", mode)
	}
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal: %w", err)
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(timeout):
		return fmt.Errorf("still running %v after a stop in mode %s", timeout, mode)
	}
}

// exited reports whether the process has ended.
func (p *process) exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}
