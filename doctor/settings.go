package doctor

import (
	"context"
	"fmt"
	"time"
)

// settings looks at those that void a guarantee.
func (e *examination) settings(ctx context.Context) error {
	var s struct {
		Isolation         string
		ReadOnly          bool
		SynchronousCommit string
		Fsync             bool
		FullPageWrites    bool
		Autovacuum        bool
	}
	if err := e.scan(ctx, &s, postgresSettings); err != nil {
		return err
	}
	if s.ReadOnly {
		e.find("read-only", Critical, "The database cannot be written to",
			"Connect to the primary: target_session_attrs=read-write in the connection string. Or set default_transaction_read_only to off.")
	}
	if !s.Fsync {
		e.find("fsync-off", Critical, "fsync is off: a crash of the server's machine can lose accepted messages, or the whole database",
			"Set fsync to on.")
	}
	if s.Fsync && !s.FullPageWrites {
		e.find("full-page-writes-off", Warning, "full_page_writes is off: a power failure can damage tables",
			"Set full_page_writes to on, unless the file system cannot tear a page.")
	}
	if s.SynchronousCommit == "off" {
		e.find("synchronous-commit-off", Critical, "synchronous_commit is off: a crash of the database loses accepted messages",
			"Set synchronous_commit to on for the role or the database that the inbox uses.")
	}
	if s.Isolation != "read committed" {
		e.find("isolation", Warning, "Transactions are not READ COMMITTED by default",
			"Leave default_transaction_isolation at read committed. Elsewhere Add can fail with 40001 on a newer duplicate, and has to be tried again with its transaction.",
			"default_transaction_isolation is "+s.Isolation)
	}
	if !s.Autovacuum {
		e.find("autovacuum-off", Warning, "Autovacuum is off",
			"Set autovacuum and track_counts to on: the queue is a table that lives from it.")
	}
	return nil
}

// rights says what this role cannot see.
func (e *examination) rights(ctx context.Context) error {
	var all bool
	if err := e.scan(ctx, &all, postgresRights); err != nil {
		return err
	}
	if !all {
		e.find("limited-view", Info, "This role does not see the sessions of others",
			"GRANT pg_read_all_stats TO the role, to have old snapshots of others found too.")
	}
	return nil
}

// skewLimit is by how much clocks may differ.
const skewLimit = 2 * time.Second

// clock compares the application's clock with the database's: of three tries,
// the one with the quickest answer.
func (e *examination) clock(ctx context.Context) error {
	var best, skew time.Duration
	for try := range 3 {
		var now time.Time
		sent := e.config.Clock()
		if err := e.scan(ctx, &now, postgresClock); err != nil {
			return err
		}
		if took := e.config.Clock().Sub(sent); try == 0 || took < best {
			best, skew = took, sent.Add(took/2).Sub(now)
		}
	}
	direction := "ahead of"
	if skew < 0 {
		skew, direction = -skew, "behind"
	}
	if skew > skewLimit {
		e.find("clock-skew", Warning, "The clocks of this machine and of the database differ",
			"Synchronise both with NTP. The inbox judges times by the database's clock alone; due times that the application computes, and logs, are off.",
			fmt.Sprintf("this machine is %s %s the database", age(skew), direction))
	}
	return nil
}
