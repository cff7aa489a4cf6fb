package inbox

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"
)

// Migrations holds the plain SQL files, for goose and other tools. They use the
// default names; Migrate fills in Config.Schema and Config.Prefix.
//
//go:embed migrations
var Migrations embed.FS

type migration struct {
	version int
	sql     string
}

// migrations returns the files of a database in the order of their versions.
func migrations(name dialectName) ([]migration, error) {
	dir := path.Join("migrations", string(name))
	files, err := fs.ReadDir(Migrations, dir)
	if err != nil {
		return nil, err
	}
	var all []migration
	for i, file := range files {
		number, _, _ := strings.Cut(file.Name(), "_")
		version, err := strconv.Atoi(number)
		if err != nil || version != i+1 {
			return nil, fmt.Errorf("inbox: migration %s: want version %d", file.Name(), i+1)
		}
		text, err := fs.ReadFile(Migrations, path.Join(dir, file.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, migration{version, string(text)})
	}
	return all, nil
}

// Migrate creates or updates the tables, in one transaction. It sends no DDL
// when they are current, and is safe when many processes start at once. Each
// lock is waited for at most Config.LockTimeout, so that a busy older version is
// not held up; on a timeout Migrate tries again until ctx ends.
//
// ErrSchemaNewer when a newer release has migrated them; ErrMemoryDatabase.
func (r *Repository) Migrate(ctx context.Context) error {
	if err := r.prepareSQLite(ctx); err != nil {
		return err
	}
	all, err := migrations(r.dialect)
	if err != nil {
		return err
	}
	pause := Backoff{Base: 100 * time.Millisecond, Max: 5 * time.Second}
	for try := 1; ; try++ {
		current, err := r.version(ctx, all)
		if current || err != nil {
			return err
		}
		err = r.wrap("migrate", r.inTransaction(ctx, txOptions{lock: sqliteMigrateLock}, func(ctx context.Context, tx querier) error {
			return r.migrate(ctx, tx, all)
		}))
		var again *RetryableError
		if !errors.As(err, &again) {
			return err
		}
		if sleep(ctx, pause.Delay(try)) != nil {
			return err
		}
	}
}

// version reports whether the tables are current.
func (r *Repository) version(ctx context.Context, all []migration) (current bool, err error) {
	version, err := r.store.version(ctx, r.db.DB)
	if err != nil {
		return false, fmt.Errorf("inbox: read the schema version: %w", err)
	}
	if newest := len(all); version > newest {
		return false, fmt.Errorf("%w: version %d, this program knows %d", ErrSchemaNewer, version, newest)
	}
	return version == len(all), nil
}

func (r *Repository) migrate(ctx context.Context, tx querier, all []migration) error {
	if err := r.store.migrateLock(ctx, tx, r.config.LockTimeout); err != nil {
		return err
	}
	version, err := r.store.version(ctx, tx)
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.version <= version {
			continue
		}
		for _, statement := range statements(m.sql) {
			if _, err := tx.ExecContext(ctx, r.rename(statement)); err != nil {
				return fmt.Errorf("version %d: %w", m.version, err)
			}
		}
	}
	return nil
}

// statements splits a migration file. Our files hold no semicolon elsewhere.
func statements(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		if code, _, _ := strings.Cut(line, "--"); strings.TrimSpace(code) != "" {
			lines = append(lines, code)
		}
	}
	var out []string
	for statement := range strings.SplitSeq(strings.Join(lines, "\n"), ";") {
		if strings.TrimSpace(statement) != "" {
			out = append(out, statement)
		}
	}
	return out
}

// rename replaces the default prefix of a statement.
func (r *Repository) rename(statement string) string {
	prefix := strings.ReplaceAll(r.config.Prefix, `"`, `""`)
	return strings.ReplaceAll(statement, `"inbox_`, `"`+prefix+`_`)
}
