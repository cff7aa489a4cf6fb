package testdb

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
)

// StartStandby starts a server that follows primary by streaming replication, and
// makes it synchronous: from its return on, a commit at the primary waits for it.
// It is a copy of the primary with its own port, read-only until somebody calls
// [Server.Promote], and is closed after the test. Where PostgreSQL comes without
// pg_basebackup the test is skipped.
func StartStandby(tb testing.TB, primary *Server) *Server {
	tb.Helper()
	if _, err := exec.LookPath(filepath.Join(primary.bin, "pg_basebackup")); err != nil {
		tb.Skipf("testdb: install PostgreSQL's client programs for a standby: no pg_basebackup in %s", primary.bin)
	}
	ctx, cancel := context.WithTimeout(tb.Context(), startTimeout)
	defer cancel()
	s, err := newServer(primary.bin, primary.account)
	if err != nil {
		tb.Fatalf("testdb: start standby: %v", err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("testdb: %v", err)
		}
	})
	if err := s.follow(ctx, primary.DSN()); err != nil {
		tb.Fatalf("testdb: start standby: %v%s", err, s.logTail())
	}
	return s
}

// standbyName is what the standby calls itself at the primary.
const standbyName = "letterbox_standby"

// follow copies the primary, starts the copy and waits until it is synchronous.
func (s *Server) follow(ctx context.Context, primary string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	// -R leaves the connection in the copy's configuration.
	err := s.run(ctx, "pg_basebackup", "-D", s.data(), "-d", primary+"&application_name="+standbyName,
		"-R", "-X", "stream", "-c", "fast", "--no-sync")
	if err != nil {
		return fmt.Errorf("copy the primary: %w", err)
	}
	if s.port, err = freePort(); err != nil {
		return err
	}
	if err := s.launch(ctx); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, primary)
	if err != nil {
		return fmt.Errorf("connect to the primary: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, statement := range []string{
		`ALTER SYSTEM SET synchronous_standby_names = '` + standbyName + `'`,
		`SELECT pg_reload_conf()`,
	} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("make it synchronous: %w", err)
		}
	}
	for synchronous := false; !synchronous; {
		err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_stat_replication
			WHERE application_name = $1 AND sync_state = 'sync' AND state = 'streaming')`, standbyName).Scan(&synchronous)
		if err != nil {
			return fmt.Errorf("wait until it is synchronous: %w", err)
		}
	}
	return nil
}

// Promote makes a standby from [StartStandby] a primary and returns when it takes
// writes. End the old primary first: nothing else keeps it from taking writes too.
func (s *Server) Promote(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Not pg_promote(): replay may have to wait for the snapshot of that very query.
	if err := s.run(ctx, "pg_ctl", "promote", "-D", s.data(), "-w", "-s"); err != nil {
		return fmt.Errorf("promote: %w%s", err, s.logTail())
	}
	return nil
}
