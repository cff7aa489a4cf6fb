package inbox

import (
	"context"
	"database/sql"
)

// SQLConn is what *sql.DB, *sql.Conn and *sql.Tx have in common, and what sqlc
// calls DBTX.
type SQLConn interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

var (
	_ SQLConn = (*sql.DB)(nil)
	_ SQLConn = (*sql.Tx)(nil)
	_ SQLConn = (*sqlConn)(nil)
)

// SQL is DB for handlers that write with database/sql itself, or with what is
// built on it, such as sqlc: statements go to the driver as they stand, with its
// own placeholders and bound arguments, and without bun's hooks. pgx keeps them
// prepared on each connection, by default or when the first argument is
// pgx.QueryExecModeCacheStatement; many small statements take a good deal less of
// PostgreSQL that way.
//
// It returns the transaction of the inbox when ctx carries one on the same
// *sql.DB as fallback (that of a *bun.DB is its field DB), and fallback itself
// otherwise. What DB says of the transaction holds here too; a prepared statement
// lives no longer than the handler call, and is prepared on this side only.
func SQL(ctx context.Context, fallback SQLConn) SQLConn {
	a, ok := ctx.Value(ambientKey).(*ambient)
	if !ok || a.handle == nil {
		return fallback
	}
	if db, ok := fallback.(*sql.DB); ok && db == a.handle.db.DB {
		return &sqlConn{outer{a.handle.guard}, a.handle}
	}
	return fallback
}

// sqlConn is the way through a guard for SQL.
type sqlConn struct {
	outer
	handle *handle
}

// PrepareContext prepares on the bridge, whose statements pass the guard: one
// that is prepared on the real transaction would not.
func (c *sqlConn) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	return c.handle.bridged().DB.PrepareContext(ctx, query)
}
