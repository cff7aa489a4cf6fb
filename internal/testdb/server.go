package testdb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

const (
	superuser = "postgres"

	// startTimeout bounds a start with its recovery, stopTimeout a stop.
	startTimeout = time.Minute
	stopTimeout  = time.Minute
	// portAttempts is how many ports a first start tries.
	portAttempts = 5
	// restartAttempts and the pause between them bound the wait for what may still
	// hold the port or the directory of a server that starts again.
	restartAttempts = 50
	restartPause    = 100 * time.Millisecond
)

// Config describes a server. The zero value is the server that tests share.
type Config struct {
	// Durable turns fsync and full_page_writes on, as in production: for
	// benchmarks. By default both are off.
	Durable bool
	// Settings are set in postgresql.conf after this package's own, name to value,
	// unquoted: "wal_level": "logical". The port and the data directory are not
	// settings.
	Settings map[string]string
}

// Server is a PostgreSQL server of one's own, on 127.0.0.1, from [Start] or
// [StartServer]. Its methods may be called concurrently; Stop, Start, Restart and
// Close wait for each other.
type Server struct {
	bin     string // the directory of the programs
	dir     string // holds the data directory and the log, goes with the server
	account account
	dog     *watchdog

	mu     sync.Mutex
	port   int
	proc   *process // the postmaster, nil while it is stopped
	closed bool
}

// Start starts a server for a program that is not a test, and returns when it
// takes connections. The caller closes it; if the program dies before, the
// watchdog does. The context bounds the start only.
//
// It takes the binaries of this machine, or downloads some, but never the server
// in LETTERBOX_TEST_POSTGRES.
func Start(ctx context.Context, config Config) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	account, err := serverAccount()
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	bin, err := binaries(ctx)
	if err != nil {
		return nil, err
	}
	s, err := newServer(bin, account)
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	if err := s.setUp(ctx, config); err != nil {
		err = fmt.Errorf("start PostgreSQL: %w%s", err, s.logTail())
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// newServer makes the directory and puts a watchdog in front of it, before there
// is anything else to clean up.
func newServer(bin string, account account) (*Server, error) {
	dir, err := os.MkdirTemp(account.tempDir(), "letterbox-testdb-")
	if err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	dog, err := startWatchdog(dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s := &Server{bin: bin, dir: dir, account: account, dog: dog}
	if err := account.own(dir); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// setUp makes the cluster and starts it for the first time, on a port that
// nobody else has.
func (s *Server) setUp(ctx context.Context, config Config) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.makeCluster(ctx, s.data()); err != nil {
		return err
	}
	if err := configure(s.data(), config.settings()); err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		port, err := freePort()
		if err != nil {
			return err
		}
		s.port = port
		err = s.launch(ctx)
		// It exited: perhaps somebody took the port in the meantime.
		if !errors.Is(err, errExited) || attempt == portAttempts {
			return err
		}
	}
}

// DSN returns the URL of the server's database postgres, for its superuser. It
// stays the same over restarts.
func (s *Server) DSN() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := url.URL{
		Scheme:   "postgres",
		User:     url.User(superuser),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)),
		Path:     "/postgres",
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Stop stops the server and returns when it is gone. The modes are pg_ctl's:
// "smart" waits for clients to leave, "fast" ends their sessions, "immediate"
// quits without a checkpoint, so that the next Start recovers from the log; and
// one more, "kill", a SIGKILL to the postmaster, as the kernel does when memory
// is short. A stopped server is left alone. After a minute it returns an error.
func (s *Server) Stop(mode string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stop(mode)
}

// Start starts a stopped server again, on the same port and data, and returns
// when it takes connections. It is an error if the server is running.
func (s *Server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.startAgain()
}

// Restart is Stop and Start, with no call of others in between.
func (s *Server) Restart(mode string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.stop(mode); err != nil {
		return err
	}
	return s.startAgain()
}

// Close stops the server, running or not, and removes its directory. Closing it
// twice is allowed.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	err := s.stop("immediate")
	if err == nil {
		err = os.RemoveAll(s.dir)
	}
	if err == nil {
		s.dog.dismiss()
		return nil
	}
	// Something still runs: the watchdog knows how to end it.
	s.dog.alarm()
	if err := os.RemoveAll(s.dir); err != nil {
		return fmt.Errorf("close PostgreSQL: %w", err)
	}
	return nil
}

func (s *Server) stop(mode string) error {
	if s.proc == nil {
		return nil
	}
	if err := s.proc.stop(mode, stopTimeout); err != nil {
		return fmt.Errorf("stop PostgreSQL: %w", err)
	}
	s.proc = nil
	return nil
}

func (s *Server) startAgain() error {
	if s.closed {
		return errors.New("start PostgreSQL: it is closed")
	}
	if s.proc != nil && !s.proc.exited() {
		return errors.New("start PostgreSQL: it is running")
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for attempt := 1; ; attempt++ {
		err := s.launch(ctx)
		if err == nil {
			return nil
		}
		// The backends of a killed postmaster hold its shared memory, and perhaps
		// somebody the port, for a moment only.
		if !errors.Is(err, errExited) || attempt == restartAttempts {
			return fmt.Errorf("start PostgreSQL: %w%s", err, s.logTail())
		}
		time.Sleep(restartPause)
	}
}

func (s *Server) data() string    { return filepath.Join(s.dir, "data") }
func (s *Server) logFile() string { return filepath.Join(s.dir, "log") }

// logTail returns the end of the log, to stand behind an error.
func (s *Server) logTail() string {
	const most = 2000
	text, err := os.ReadFile(s.logFile())
	if err != nil || len(text) == 0 {
		return ""
	}
	return "\nits log:\n" + string(text[max(0, len(text)-most):])
}
