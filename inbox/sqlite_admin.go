package inbox

import (
	"context"
	"fmt"
	"time"
)

func (s *sqlite) version(ctx context.Context, q querier) (int, error) {
	var found bool
	err := s.scan(ctx, q, &found, `SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?)`, s.config.Prefix+"_schema")
	if err != nil || !found {
		return 0, err
	}
	var version int
	err = s.scan(ctx, q, &version, s.text(sqliteVersion))
	return version, err
}

// migrateLock only cleans up: the transaction began with sqliteMigrateLock, and
// so holds the write lock.
func (s *sqlite) migrateLock(ctx context.Context, q querier, _ time.Duration) error {
	_, err := s.exec(ctx, q, s.text(sqliteMigrateUnlock))
	return err
}

// prepareSQLite refuses a database that would be several, and turns on
// write-ahead logging, which is kept in the file. While another process turns it
// on, SQLite may say "busy" at once, whatever the time-out; so it may to a
// connection that is opened with that pragma.
func (r *Repository) prepareSQLite(ctx context.Context) error {
	if r.dialect != sqliteDialect {
		return nil
	}
	pause := Backoff{Base: 20 * time.Millisecond, Max: time.Second}
	for try := 1; ; try++ {
		err := r.turnOnWAL(ctx)
		if err == nil || r.dialect.retryCode(err) == "" || sleep(ctx, pause.Delay(try)) != nil {
			return err
		}
	}
}

func (r *Repository) turnOnWAL(ctx context.Context) error {
	var file string
	if err := r.scan(ctx, r.db.DB, &file, `SELECT COALESCE(file, '') FROM pragma_database_list WHERE name = 'main'`); err != nil {
		return fmt.Errorf("inbox: open the database: %w", err)
	}
	if file == "" {
		if r.db.Stats().MaxOpenConnections != 1 {
			return ErrMemoryDatabase
		}
		return nil
	}
	var mode string
	if err := r.scan(ctx, r.db.DB, &mode, `SELECT journal_mode FROM pragma_journal_mode`); err != nil {
		return fmt.Errorf("inbox: read the journal mode: %w", err)
	}
	if mode == "wal" {
		return nil
	}
	if err := r.scan(ctx, r.db.DB, &mode, `PRAGMA journal_mode = WAL`); err != nil {
		return fmt.Errorf("inbox: switch to write-ahead logging: %w", err)
	}
	return nil
}

func (s *sqlite) check(ctx context.Context) error {
	var milliseconds int
	if err := s.scan(ctx, s.db.DB, &milliseconds, `SELECT timeout FROM pragma_busy_timeout`); err != nil {
		return err
	}
	if milliseconds < 1000 {
		s.config.Logger.WarnContext(ctx, "inbox: the busy timeout of SQLite is short: writers fail instead of waiting",
			"milliseconds", milliseconds, "remedy", "add _pragma=busy_timeout(30000) to the data source name")
	}
	return nil
}

func (s *sqlite) backlog(ctx context.Context, names []string, limit int64) (Backlog, error) {
	var backlog Backlog
	if limit > 0 {
		args := make([]any, 0, len(names)+1)
		for _, name := range names {
			args = append(args, name)
		}
		args = append(args, limit)
		if err := s.scan(ctx, s.db.DB, &backlog.Pending, placeholders(s.text(sqliteBacklog), 1, len(names)), args...); err != nil {
			return Backlog{}, err
		}
	}
	now := s.processClock()
	for _, name := range names {
		var oldest string
		if err := s.scan(ctx, s.db.DB, &oldest, s.text(sqliteBacklogOldest), name, sqliteTime(now)); err != nil {
			return Backlog{}, err
		}
		due, err := parseSQLiteTime(oldest)
		if err != nil {
			return Backlog{}, err
		}
		if !due.IsZero() {
			backlog.OldestDue = max(backlog.OldestDue, now.Sub(due))
		}
	}
	return backlog, nil
}

func (s *sqlite) status(ctx context.Context, identity Identity, names []string) (Status, error) {
	args := []any{identity.Source, identity.MessageID}
	for _, name := range names {
		args = append(args, name)
	}
	var rows []struct {
		ID          int64
		Name        string
		Status      int
		Attempts    int
		ReceivedAt  string
		ProcessedAt string
		Due         string
	}
	if err := s.scan(ctx, s.db.DB, &rows, placeholders(s.text(sqliteMessageStatus), 1, len(names)), args...); err != nil {
		return Status{}, err
	}
	if len(rows) == 0 {
		return Status{}, ErrNotFound
	}
	row := rows[0]
	identity.Name = row.Name
	status := Status{ID: row.ID, Identity: identity, Kind: kindOf(row.Status), Attempts: row.Attempts}
	if status.Kind != Pending {
		row.Due = ""
	}
	var err error
	for _, field := range []struct {
		to   *time.Time
		text string
	}{{&status.ReceivedAt, row.ReceivedAt}, {&status.ProcessedAt, row.ProcessedAt}, {&status.Due, row.Due}} {
		if *field.to, err = parseSQLiteTime(field.text); err != nil {
			return Status{}, fmt.Errorf("message %d: %w", row.ID, err)
		}
	}
	return status, nil
}

// parseSQLiteTime reads what sqliteTime wrote; "" is the zero time.
func parseSQLiteTime(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	return time.Parse(sqliteTimeFormat, text)
}
