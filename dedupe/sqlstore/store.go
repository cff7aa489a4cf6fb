package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/letterbox-go/letterbox/dedupe"
)

// tries bounds how often a statement is sent when the database asks for another
// try, or when the row changed between two looks.
const tries = 10

// Store is a dedupe.Store in one table.
type Store struct {
	db     *bun.DB
	config Config
	engine engine
}

var (
	_ dedupe.Store   = (*Store)(nil)
	_ dedupe.Cleaner = (*Store)(nil)
)

// engine is what differs between the databases.
type engine interface {
	reserve(ctx context.Context, key dedupe.Key, token string, lease time.Duration) (found dedupe.Reservation, ok bool, err error)
	confirmHeld(ctx context.Context, key dedupe.Key, token string, ttl time.Duration) (bool, error)
	confirmAnyway(ctx context.Context, key dedupe.Key, token string, ttl time.Duration) error
	release(ctx context.Context, key dedupe.Key, token string) (held bool, err error)
	cleanup(ctx context.Context, limit int) (int, error)
	migrate(ctx context.Context) error
	// retry reports that the database wants the statement once more.
	retry(err error) bool
}

// New returns a store on a PostgreSQL or SQLite database, told apart by bun's
// dialect. It sends nothing yet: call Migrate once per start.
func New(db *bun.DB, config Config) (*Store, error) {
	if db == nil {
		return nil, errors.New("sqlstore: the database is nil")
	}
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	s := &Store{db: db, config: config}
	switch name := db.Dialect().Name(); name {
	case dialect.PG:
		s.engine = &postgres{s}
	case dialect.SQLite:
		if config.Schema != "" {
			return nil, errors.New("sqlstore: config: Schema: SQLite has no schemas")
		}
		s.engine = &sqlite{s}
	default:
		return nil, fmt.Errorf("sqlstore: %s is not supported: use PostgreSQL or SQLite", name)
	}
	return s, nil
}

// Migrate creates the table when it is missing. It is safe when many processes
// start at once, and sends no DDL when the table is there.
func (s *Store) Migrate(ctx context.Context) error {
	if err := s.again(ctx, func() error { return s.engine.migrate(ctx) }); err != nil {
		return fmt.Errorf("sqlstore: migrate: %w", err)
	}
	return nil
}

// errChanged says that the row changed between two looks at it.
var errChanged = errors.New("the row keeps changing")

// Reserve takes a free key. See [dedupe.Store].
func (s *Store) Reserve(ctx context.Context, key dedupe.Key, token string, lease time.Duration) (found dedupe.Reservation, err error) {
	err = s.again(ctx, func() error {
		var ok bool
		if found, ok, err = s.engine.reserve(ctx, key, token, lease); err == nil && !ok {
			return errChanged
		}
		return err
	})
	if err != nil {
		return dedupe.Reservation{}, fmt.Errorf("sqlstore: reserve: %w", err)
	}
	return found, nil
}

// Confirm remembers the key. See [dedupe.Store].
func (s *Store) Confirm(ctx context.Context, key dedupe.Key, token string, ttl time.Duration) (held bool, err error) {
	err = s.again(ctx, func() error {
		if held, err = s.engine.confirmHeld(ctx, key, token, ttl); err != nil || held {
			return err
		}
		return s.engine.confirmAnyway(ctx, key, token, ttl)
	})
	if err != nil {
		return false, fmt.Errorf("sqlstore: confirm: %w", err)
	}
	return held, nil
}

// Release frees a key that token holds. See [dedupe.Store].
func (s *Store) Release(ctx context.Context, key dedupe.Key, token string) (held bool, err error) {
	err = s.again(ctx, func() error {
		held, err = s.engine.release(ctx, key, token)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("sqlstore: release: %w", err)
	}
	return held, nil
}

// CleanupExpired deletes at most limit expired rows. See [dedupe.Cleaner].
func (s *Store) CleanupExpired(ctx context.Context, limit int) (deleted int, err error) {
	err = s.again(ctx, func() error {
		deleted, err = s.engine.cleanup(ctx, limit)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("sqlstore: clean up: %w", err)
	}
	return deleted, nil
}

// again repeats what the database wants repeated.
func (s *Store) again(ctx context.Context, statement func() error) error {
	for try := 1; ; try++ {
		err := statement()
		if err == nil || try == tries || ctx.Err() != nil || !errors.Is(err, errChanged) && !s.engine.retry(err) {
			return err
		}
		timer := time.NewTimer(rand.N(time.Duration(try) * 5 * time.Millisecond))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// text fills the table's name into a statement.
func (s *Store) text(template string) string {
	name := s.config.Prefix + "_dedupe"
	table, index := quote(name), quote(name+"_expires_at")
	if s.config.Schema != "" {
		table = quote(s.config.Schema) + "." + table
	}
	return strings.NewReplacer("{dedupe}", table, "{index}", index).Replace(template)
}

func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// scan reads at most one row; ok is false when there is none.
func (s *Store) scan(ctx context.Context, dest []any, template string, args ...any) (ok bool, err error) {
	err = s.db.NewRaw(s.text(template), args...).Scan(ctx, dest...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// exec returns the number of rows that a statement changed.
func (s *Store) exec(ctx context.Context, template string, args ...any) (int64, error) {
	result, err := s.db.NewRaw(s.text(template), args...).Exec(ctx)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}
