package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/dedupe"
)

type postgres struct{ *Store }

func (s *postgres) reserve(ctx context.Context, key dedupe.Key, token string, lease time.Duration) (dedupe.Reservation, bool, error) {
	var other, confirmed bool
	var remaining int64
	ok, err := s.scan(ctx, []any{&other, &confirmed, &remaining}, postgresReserve,
		key.Scope, key.ID, token,
		key.Scope, key.ID, token, microseconds(lease))
	if err != nil || !ok {
		return dedupe.Reservation{}, false, err
	}
	return reservation(other, confirmed, remaining, lease), true, nil
}

func (s *postgres) confirmHeld(ctx context.Context, key dedupe.Key, token string, ttl time.Duration) (bool, error) {
	n, err := s.exec(ctx, postgresConfirmHeld, microseconds(ttl), microseconds(ttl), key.Scope, key.ID, token)
	return n == 1, err
}

func (s *postgres) confirmAnyway(ctx context.Context, key dedupe.Key, token string, ttl time.Duration) error {
	_, err := s.exec(ctx, postgresConfirmAnyway, key.Scope, key.ID, token, microseconds(ttl))
	return err
}

func (s *postgres) release(ctx context.Context, key dedupe.Key, token string) (held bool, err error) {
	_, err = s.scan(ctx, []any{&held}, postgresRelease, key.Scope, key.ID, token)
	return held, err
}

func (s *postgres) cleanup(ctx context.Context, limit int) (int, error) {
	n, err := s.exec(ctx, postgresCleanup, limit)
	return int(n), err
}

// migrate looks first without a lock, so that a current table costs one query.
func (s *postgres) migrate(ctx context.Context) error {
	if found, err := s.migrated(ctx, s.db); found || err != nil {
		return err
	}
	// Each statement has to see what was committed while it waited for the lock.
	options := &sql.TxOptions{Isolation: sql.LevelReadCommitted}
	return s.db.RunInTx(ctx, options, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.ExecContext(ctx, `SELECT set_config('lock_timeout', ?, true)`,
			fmt.Sprintf("%dms", s.config.LockTimeout.Milliseconds())); err != nil {
			return err
		}
		// IF NOT EXISTS alone is not enough: two at once still collide.
		if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock(?)`, s.lockKey()); err != nil {
			return err
		}
		if found, err := s.migrated(ctx, tx); found || err != nil {
			return err
		}
		var statements []string
		if s.config.Schema != "" {
			statements = append(statements, `CREATE SCHEMA IF NOT EXISTS `+quote(s.config.Schema))
		}
		for _, statement := range append(statements, postgresCreate, postgresCreateIndex) {
			if _, err := tx.ExecContext(ctx, s.text(statement)); err != nil {
				return err
			}
		}
		return nil
	})
}

// migrated reads the catalogue like a table. to_regclass would answer from a
// cache, which may have missed what another process committed a moment ago.
func (s *postgres) migrated(ctx context.Context, db bun.IDB) (found bool, err error) {
	err = db.NewRaw(postgresMigrated, s.config.Schema, s.config.Schema, s.config.Prefix+"_dedupe").Scan(ctx, &found)
	return found, err
}

// lockKey serialises migrations of this table and of no other.
func (s *postgres) lockKey() int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte("letterbox\x00" + s.config.Schema + "\x00" + s.config.Prefix + "\x00dedupe"))
	return int64(h.Sum64())
}

// retry: https://www.postgresql.org/docs/current/errcodes-appendix.html
func (s *postgres) retry(err error) bool {
	switch sqlState(err) {
	case "40001", "40P01", "55P03": // serialization failure, deadlock, lock timeout
		return true
	}
	return false
}

// sqlState returns the SQLSTATE of an error: pgx has SQLState, bun's pgdriver Field.
func sqlState(err error) string {
	var pgx interface{ SQLState() string }
	if errors.As(err, &pgx) {
		return pgx.SQLState()
	}
	var pgdriver interface{ Field(byte) string }
	if errors.As(err, &pgdriver) {
		return pgdriver.Field('C')
	}
	return ""
}

// reservation puts a row into words.
func reservation(other, confirmed bool, remaining int64, lease time.Duration) dedupe.Reservation {
	switch {
	case !other:
		return dedupe.Reservation{State: dedupe.Reserved, Remaining: lease}
	case confirmed:
		return dedupe.Reservation{State: dedupe.Confirmed, Remaining: time.Duration(remaining) * time.Microsecond}
	}
	return dedupe.Reservation{State: dedupe.Held, Remaining: time.Duration(remaining) * time.Microsecond}
}

func microseconds(d time.Duration) int64 { return d.Microseconds() }
