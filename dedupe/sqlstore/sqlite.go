package sqlstore

import (
	"context"
	"errors"
	"time"

	"github.com/letterbox-go/letterbox/dedupe"
)

// ErrMemoryDatabase is returned by Migrate for a SQLite database in memory behind
// a pool of several connections: each would be a database of its own. Call
// SetMaxOpenConns(1) on the pool, or use a file.
var ErrMemoryDatabase = errors.New("an in-memory database needs SetMaxOpenConns(1)")

type sqlite struct{ *Store }

// after is the time d from now as it is stored.
func (s *sqlite) after(d time.Duration) int64 { return s.config.Clock().Add(d).UnixMicro() }

func (s *sqlite) reserve(ctx context.Context, key dedupe.Key, token string, lease time.Duration) (dedupe.Reservation, bool, error) {
	now := s.after(0)
	var confirmed bool
	var end int64
	other, err := s.scan(ctx, []any{&confirmed, &end}, sqliteOther, key.Scope, key.ID, now, token)
	if err != nil {
		return dedupe.Reservation{}, false, err
	}
	if other {
		return reservation(true, confirmed, end-now, lease), true, nil
	}
	n, err := s.exec(ctx, sqliteReserve, key.Scope, key.ID, token, s.after(lease), now)
	return reservation(false, false, 0, lease), n == 1, err
}

func (s *sqlite) confirmHeld(ctx context.Context, key dedupe.Key, token string, ttl time.Duration) (bool, error) {
	end := s.after(ttl)
	n, err := s.exec(ctx, sqliteConfirmHeld, end, end, key.Scope, key.ID, token, s.after(0))
	return n == 1, err
}

func (s *sqlite) confirmAnyway(ctx context.Context, key dedupe.Key, token string, ttl time.Duration) error {
	_, err := s.exec(ctx, sqliteConfirmAnyway, key.Scope, key.ID, token, s.after(ttl))
	return err
}

func (s *sqlite) release(ctx context.Context, key dedupe.Key, token string) (held bool, err error) {
	_, err = s.scan(ctx, []any{&held}, sqliteRelease, key.Scope, key.ID, token, s.after(0))
	return held, err
}

func (s *sqlite) cleanup(ctx context.Context, limit int) (int, error) {
	now := s.after(0)
	n, err := s.exec(ctx, sqliteCleanup, now, limit, now)
	return int(n), err
}

// migrate needs no transaction: each statement does nothing when it has been done.
func (s *sqlite) migrate(ctx context.Context) error {
	var file string
	if _, err := s.scan(ctx, []any{&file}, `SELECT COALESCE(file, '') FROM pragma_database_list WHERE name = 'main'`); err != nil {
		return err
	}
	if file == "" && s.db.Stats().MaxOpenConnections != 1 {
		return ErrMemoryDatabase
	}
	for _, statement := range []string{sqliteCreate, sqliteCreateIndex} {
		if _, err := s.exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// retry: https://www.sqlite.org/rescode.html
func (s *sqlite) retry(err error) bool {
	var coded interface{ Code() int }
	if !errors.As(err, &coded) {
		return false
	}
	switch coded.Code() & 0xff {
	case 5, 6: // SQLITE_BUSY, SQLITE_LOCKED
		return true
	}
	return false
}
