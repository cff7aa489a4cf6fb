package inbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"reflect"

	"github.com/uptrace/bun"
)

// bridge is a database/sql driver whose connections lead back to a handle. It
// gives handlers a real bun.Tx for nested transactions whose Commit, Rollback
// and raw SQL cannot reach the transaction of the inbox: bun's own nested
// bun.Tx embeds the outer *sql.Tx.
type bridge struct{ handle *handle }

var errBridgeOnly = errors.New("inbox: only statements without driver arguments pass")

func (b bridge) Connect(context.Context) (driver.Conn, error) { return bridgeConn(b), nil }
func (b bridge) Driver() driver.Driver                        { return b }
func (b bridge) Open(string) (driver.Conn, error)             { return bridgeConn(b), nil }

type bridgeConn struct{ handle *handle }

var (
	_ driver.ConnBeginTx       = bridgeConn{}
	_ driver.ExecerContext     = bridgeConn{}
	_ driver.QueryerContext    = bridgeConn{}
	_ driver.NamedValueChecker = bridgeConn{}
)

func (c bridgeConn) Close() error { return nil }

// Begin is never called: BeginTx is there.
func (c bridgeConn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

// CheckNamedValue lets arguments through to the real driver.
func (c bridgeConn) CheckNamedValue(*driver.NamedValue) error { return nil }

func (c bridgeConn) BeginTx(ctx context.Context, _ driver.TxOptions) (driver.Tx, error) {
	end, err := c.handle.guard.savepoint(ctx)
	if err != nil {
		return nil, err
	}
	return bridgeTx(end), nil
}

type bridgeTx func(commit bool) error

func (t bridgeTx) Commit() error   { return t(true) }
func (t bridgeTx) Rollback() error { return t(false) }

func (c bridgeConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (result driver.Result, err error) {
	err = c.hooked(ctx, query, func(ctx context.Context) error {
		result, err = c.handle.guard.ExecContext(ctx, query, values(args)...)
		return err
	})
	return result, err
}

func (c bridgeConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	var rows *sql.Rows
	err := c.hooked(ctx, query, func(ctx context.Context) (err error) {
		rows, err = c.handle.guard.QueryContext(ctx, query, values(args)...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return newBridgeRows(rows)
}

// hooked lets the hooks of the application's bun.DB see a finished query.
func (c bridgeConn) hooked(ctx context.Context, query string, send func(context.Context) error) error {
	return c.handle.hooked(ctx, "?", []any{bun.Safe(query)}, func(ctx context.Context, _ string) error { return send(ctx) })
}

func values(args []driver.NamedValue) []any {
	out := make([]any, len(args))
	for i, arg := range args {
		out[i] = arg.Value
		if arg.Name != "" {
			out[i] = sql.Named(arg.Name, arg.Value)
		}
	}
	return out
}

// Prepare makes a statement that is sent whole each time: nothing is prepared
// on the server.
func (c bridgeConn) Prepare(query string) (driver.Stmt, error) { return bridgeStmt{c, query}, nil }

type bridgeStmt struct {
	conn  bridgeConn
	query string
}

var (
	_ driver.StmtExecContext  = bridgeStmt{}
	_ driver.StmtQueryContext = bridgeStmt{}
)

func (s bridgeStmt) Close() error                               { return nil }
func (s bridgeStmt) NumInput() int                              { return -1 }
func (s bridgeStmt) Exec([]driver.Value) (driver.Result, error) { return nil, errBridgeOnly }
func (s bridgeStmt) Query([]driver.Value) (driver.Rows, error)  { return nil, errBridgeOnly }

func (s bridgeStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.conn.ExecContext(ctx, s.query, args)
}

func (s bridgeStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.conn.QueryContext(ctx, s.query, args)
}

// bridgeRows hands rows of the real driver on, value by value.
type bridgeRows struct {
	rows    *sql.Rows
	columns []string
	types   []*sql.ColumnType
	targets []any
}

var (
	_ driver.RowsColumnTypeDatabaseTypeName = (*bridgeRows)(nil)
	_ driver.RowsColumnTypeScanType         = (*bridgeRows)(nil)
)

func newBridgeRows(rows *sql.Rows) (*bridgeRows, error) {
	columns, err := rows.Columns()
	if err != nil {
		return nil, errors.Join(err, rows.Close())
	}
	types, err := rows.ColumnTypes()
	if err != nil {
		return nil, errors.Join(err, rows.Close())
	}
	return &bridgeRows{rows: rows, columns: columns, types: types, targets: make([]any, len(columns))}, nil
}

func (r *bridgeRows) Columns() []string { return r.columns }
func (r *bridgeRows) Close() error      { return r.rows.Close() }

func (r *bridgeRows) Next(dest []driver.Value) error {
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return io.EOF
	}
	// Into an any: database/sql does not scan NULL into a driver.Value.
	values := make([]any, len(dest))
	for i := range values {
		r.targets[i] = &values[i]
	}
	if err := r.rows.Scan(r.targets...); err != nil {
		return err
	}
	for i, value := range values {
		dest[i] = value
	}
	return nil
}

func (r *bridgeRows) ColumnTypeDatabaseTypeName(i int) string { return r.types[i].DatabaseTypeName() }
func (r *bridgeRows) ColumnTypeScanType(i int) reflect.Type   { return r.types[i].ScanType() }

// failing is a connector that always fails: database/sql has no other way to
// make a *sql.Row with an error.
type failing struct{ err error }

func (f failing) Connect(context.Context) (driver.Conn, error) { return nil, f.err }
func (f failing) Driver() driver.Driver                        { return f }
func (f failing) Open(string) (driver.Conn, error)             { return nil, f.err }

func errorRow(ctx context.Context, err error) *sql.Row {
	db := sql.OpenDB(failing{err})
	defer func() { _ = db.Close() }()
	return db.QueryRowContext(context.WithoutCancel(ctx), "")
}
