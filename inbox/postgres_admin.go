package inbox

import (
	"context"
	"database/sql"
	"hash/fnv"
	"time"

	"github.com/uptrace/bun/dialect/pgdialect"
)

// lockKey derives an advisory lock from the place of the tables, so that two
// inboxes in one database never wait for each other.
func (d *database) lockKey(purpose string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte("letterbox\x00" + d.config.Schema + "\x00" + d.config.Prefix + "\x00" + purpose))
	return int64(h.Sum64())
}

func (s *postgres) version(ctx context.Context, q querier) (int, error) {
	// to_regclass instead of the error of a missing table, which would end
	// the transaction. Alone it may answer from the session's cache of names,
	// which is brought up to date when a relation is locked: a process that has
	// waited for migrateLock would not see the tables of the one before it.
	var found bool
	err := s.scan(ctx, q, &found, `SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_class WHERE oid = to_regclass(?))`, s.table("schema"))
	if err != nil || !found {
		return 0, err
	}
	var version int
	err = s.scan(ctx, q, &version, s.text(postgresVersion))
	return version, err
}

func (s *postgres) migrateLock(ctx context.Context, q querier, timeout time.Duration) error {
	if err := s.setLockTimeout(ctx, q, timeout); err != nil {
		return err
	}
	if _, err := s.exec(ctx, q, `SELECT pg_advisory_xact_lock(?)`, s.lockKey("migrate")); err != nil {
		return err
	}
	if s.config.Schema == "" {
		return nil
	}
	// CREATE SCHEMA IF NOT EXISTS would need rights on the database even where
	// the schema exists, and believes a cache that the lock does not refresh.
	var found bool
	if err := s.scan(ctx, q, &found, `SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = ?)`, s.config.Schema); err != nil {
		return err
	}
	if !found {
		if _, err := s.exec(ctx, q, `CREATE SCHEMA `+quoteIdent(s.config.Schema)); err != nil {
			return err
		}
	}
	// The migration files do not name a schema; this ends with the transaction.
	_, err := s.exec(ctx, q, `SELECT set_config('search_path', ?, true)`, quoteIdent(s.config.Schema))
	return err
}

// check warns of settings that make an accepted message less than durable.
func (s *postgres) check(ctx context.Context) error {
	var setting string
	if err := s.scan(ctx, s.db.DB, &setting, `SELECT current_setting('synchronous_commit')`); err != nil {
		return err
	}
	if setting == "off" {
		s.config.Logger.WarnContext(ctx, "inbox: synchronous_commit is off: a crash of the database loses accepted messages",
			"remedy", "set synchronous_commit to on for the inbox's connections")
	}
	return nil
}

func (s *postgres) backlog(ctx context.Context, names []string, limit int64) (Backlog, error) {
	var backlog Backlog
	err := s.inTransaction(ctx, txOptions{isolation: sql.LevelReadCommitted}, func(ctx context.Context, tx querier) error {
		if _, err := s.exec(ctx, tx, postgresInIndexOrder); err != nil {
			return err
		}
		if limit > 0 {
			if err := s.scan(ctx, tx, &backlog.Pending, s.text(postgresBacklog), pgdialect.Array(names), limit, limit); err != nil {
				return err
			}
		}
		var oldest float64
		err := s.scan(ctx, tx, &oldest, s.text(postgresBacklogOldest), pgdialect.Array(names))
		backlog.OldestDue = time.Duration(oldest * float64(time.Second))
		return err
	})
	if err != nil {
		return Backlog{}, err
	}
	return backlog, nil
}

func (s *postgres) status(ctx context.Context, identity Identity, names []string) (Status, error) {
	var rows []struct {
		ID          int64
		Name        string
		Status      int
		Attempts    int
		ReceivedAt  time.Time
		ProcessedAt *time.Time
		Due         *time.Time
	}
	err := s.scan(ctx, s.db.DB, &rows, s.text(postgresMessageStatus), identity.Source, identity.MessageID, pgdialect.Array(names))
	if err != nil {
		return Status{}, err
	}
	if len(rows) == 0 {
		return Status{}, ErrNotFound
	}
	row := rows[0]
	identity.Name = row.Name
	status := Status{ID: row.ID, Identity: identity, Kind: kindOf(row.Status), Attempts: row.Attempts, ReceivedAt: row.ReceivedAt.UTC()}
	if row.ProcessedAt != nil {
		status.ProcessedAt = row.ProcessedAt.UTC()
	}
	if row.Due != nil && status.Kind == Pending {
		status.Due = row.Due.UTC()
	}
	return status, nil
}
