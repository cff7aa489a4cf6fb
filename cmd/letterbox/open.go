package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	_ "modernc.org/sqlite" // registers the driver "sqlite"

	"github.com/letterbox-go/letterbox/inbox"
)

// connections is how many the tool opens at most.
const connections = 4

const urlHelp = "Name it: postgres://user@host/database, or file:/path/to/inbox.db, in --database-url or DATABASE_URL."

// open opens the repository on tables that are current.
func (a *app) open(ctx context.Context, config inbox.Config) (*inbox.Repository, func(), error) {
	repo, closeDB, err := a.openAny(config, true)
	if err != nil {
		return nil, nil, err
	}
	current, newest, err := repo.SchemaVersion(ctx)
	switch {
	case err != nil:
	case current == 0:
		err = &stepError{
			err:  fmt.Errorf("there is no inbox with the prefix %q in this database", a.prefix),
			next: "Name its --schema and --prefix, or make one: letterbox migrate up.",
		}
	case current < newest:
		err = &stepError{
			err:  fmt.Errorf("the tables have version %d, this letterbox needs %d", current, newest),
			next: "Update them: letterbox migrate up. It only adds; running programs can go on.",
		}
	case current > newest:
		err = fmt.Errorf("%w: version %d, this letterbox knows %d", inbox.ErrSchemaNewer, current, newest)
	}
	if err != nil {
		closeDB()
		return nil, nil, err
	}
	return repo, closeDB, nil
}

// openAny opens the repository, whatever is in the database. A SQLite file has
// to exist if there says so.
func (a *app) openAny(config inbox.Config, there bool) (*inbox.Repository, func(), error) {
	if a.url == "" {
		a.url = os.Getenv("DATABASE_URL")
	}
	db, err := a.openDatabase(there)
	if err != nil {
		return nil, nil, err
	}
	config.Schema, config.Prefix = a.schema, a.prefix
	if a.verbose {
		config.Logger = slog.New(slog.NewTextHandler(a.stderr, nil))
	}
	repo, err := inbox.NewRepository(db, inbox.NewNameMap(), config)
	if err != nil {
		_ = db.Close()
		return nil, nil, &usageError{err: err, next: "Correct --schema, --prefix or the retention."}
	}
	return repo, func() { _ = db.Close() }, nil
}

func (a *app) openDatabase(there bool) (*bun.DB, error) {
	scheme, rest, _ := strings.Cut(a.url, ":")
	switch scheme {
	case "":
		return nil, &usageError{err: errors.New("no database was named"), next: urlHelp}
	case "postgres", "postgresql":
		return a.openPostgres()
	case "file", "sqlite":
		return openSQLite(rest, there)
	}
	return nil, &usageError{err: errors.New("the database URL is neither a postgres:// nor a file: URL"), next: urlHelp}
}

func (a *app) openPostgres() (*bun.DB, error) {
	bad := &usageError{err: errors.New("the database URL cannot be read"), next: urlHelp} // and is not shown: it may hold a password
	u, err := url.Parse(a.url)
	if err != nil {
		return nil, bad
	}
	query := u.Query()
	for name, value := range map[string]string{
		"default_query_exec_mode": "exec", // bun writes arguments into the text
		"application_name":        "letterbox",
		"connect_timeout":         "10",
	} {
		if !query.Has(name) {
			query.Set(name, value)
		}
	}
	u.RawQuery = query.Encode()
	config, err := pgx.ParseConfig(u.String())
	if err != nil {
		return nil, bad
	}
	a.secret = config.Password
	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(connections)
	return bun.NewDB(db, pgdialect.New()), nil
}

// openSQLite opens what stands behind "file:" or "sqlite:". What the URL says
// itself goes first.
func openSQLite(rest string, there bool) (*bun.DB, error) {
	path, rawQuery, _ := strings.Cut(rest, "?")
	if after, found := strings.CutPrefix(path, "///"); found {
		path = "/" + after
	}
	file, err := url.PathUnescape(path)
	query, queryErr := url.ParseQuery(rawQuery)
	if err = errors.Join(err, queryErr); err != nil || file == "" || strings.Contains(file, ":memory:") {
		return nil, &usageError{err: errors.New("the database URL names no file"), next: urlHelp}
	}
	if _, err := os.Stat(file); there && err != nil {
		return nil, &stepError{err: fmt.Errorf("open the database: %w", err), next: "Check the path, or make the inbox: letterbox migrate up."}
	}
	if !strings.Contains(rawQuery, "busy_timeout") {
		query["_pragma"] = append([]string{fmt.Sprintf("busy_timeout(%d)", (30 * time.Second).Milliseconds())}, query["_pragma"]...)
	}
	if !query.Has("_txlock") {
		query.Set("_txlock", "immediate")
	}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: file}).EscapedPath()+"?"+query.Encode())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(connections)
	return bun.NewDB(db, sqlitedialect.New()), nil
}
