package inbox

import (
	"context"
	"database/sql"
	"errors"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/schema"
)

type contextKey int

const (
	ambientKey contextKey = iota
	batchKey
	runnersKey
)

// ambient is what a handler's context carries.
type ambient struct {
	handle *handle
	info   Info
}

// DB returns what a handler should write to: the transaction of the inbox when
// ctx carries one on the same *sql.DB as fallback, and fallback itself
// otherwise. A fallback that already is a transaction is returned as it is. So
// one handler works inside the inbox and when it is called directly.
//
// What DB returns belongs to this handler call: it has no Commit or Rollback,
// refuses SQL that would end the transaction (and fails the attempt even if that
// error is swallowed), turns BeginTx and RunInTx into savepoints, and stops
// working when the handler returns.
func DB(ctx context.Context, fallback bun.IDB) bun.IDB {
	a, ok := ctx.Value(ambientKey).(*ambient)
	if !ok || a.handle == nil {
		return fallback
	}
	if db, ok := fallback.(*bun.DB); ok && db != nil && db.DB == a.handle.db.DB {
		return a.handle
	}
	return fallback
}

// MustDB returns the transaction of the inbox.
// Panics outside a handler that the inbox called.
func MustDB(ctx context.Context) bun.IDB {
	a, ok := ctx.Value(ambientKey).(*ambient)
	if !ok || a.handle == nil {
		panic("inbox: MustDB: the context carries no inbox transaction; use DB with a fallback")
	}
	return a.handle
}

// FromContext describes the message in hand; ok is false outside the inbox.
func FromContext(ctx context.Context) (info Info, ok bool) {
	a, ok := ctx.Value(ambientKey).(*ambient)
	if !ok {
		return Info{}, false
	}
	return a.info, true
}

// BatchFromContext describes the messages in hand of a batch handler, in the
// order of its slice: one, when the messages are handled one by one.
func BatchFromContext(ctx context.Context) []Info {
	if infos, ok := ctx.Value(batchKey).([]Info); ok {
		return infos
	}
	if info, ok := FromContext(ctx); ok {
		return []Info{info}
	}
	return nil
}

// handle is the transaction as a handler sees it.
type handle struct {
	db     *bun.DB
	guard  *guard
	nested *bun.DB // opened by bridged
}

var _ bun.IDB = (*handle)(nil)

func (h *handle) Dialect() schema.Dialect { return h.db.Dialect() }
func (h *handle) conn() outer             { return outer{h.guard} }

func (h *handle) NewValues(model any) *bun.ValuesQuery { return h.db.NewValues(model).Conn(h.conn()) }
func (h *handle) NewSelect() *bun.SelectQuery          { return h.db.NewSelect().Conn(h.conn()) }
func (h *handle) NewInsert() *bun.InsertQuery          { return h.db.NewInsert().Conn(h.conn()) }
func (h *handle) NewUpdate() *bun.UpdateQuery          { return h.db.NewUpdate().Conn(h.conn()) }
func (h *handle) NewDelete() *bun.DeleteQuery          { return h.db.NewDelete().Conn(h.conn()) }
func (h *handle) NewMerge() *bun.MergeQuery            { return h.db.NewMerge().Conn(h.conn()) }
func (h *handle) NewRaw(query string, args ...any) *bun.RawQuery {
	return h.db.NewRaw(query, args...).Conn(h.conn())
}

func (h *handle) NewCreateTable() *bun.CreateTableQuery {
	return h.db.NewCreateTable().Conn(h.conn())
}

func (h *handle) NewDropTable() *bun.DropTableQuery { return h.db.NewDropTable().Conn(h.conn()) }

func (h *handle) NewCreateIndex() *bun.CreateIndexQuery { return h.db.NewCreateIndex().Conn(h.conn()) }

func (h *handle) NewDropIndex() *bun.DropIndexQuery { return h.db.NewDropIndex().Conn(h.conn()) }

func (h *handle) NewTruncateTable() *bun.TruncateTableQuery {
	return h.db.NewTruncateTable().Conn(h.conn())
}
func (h *handle) NewAddColumn() *bun.AddColumnQuery   { return h.db.NewAddColumn().Conn(h.conn()) }
func (h *handle) NewDropColumn() *bun.DropColumnQuery { return h.db.NewDropColumn().Conn(h.conn()) }

// hooked sends a query through bun, which formats it and runs its hooks, and
// hands the finished text to send.
func (h *handle) hooked(ctx context.Context, query string, args []any, send func(ctx context.Context, query string) error) error {
	_, err := h.db.NewRaw(query, args...).Conn(sender(send)).Exec(ctx)
	return err
}

// sender is a connection that knows Exec only.
type sender func(ctx context.Context, query string) error

var errExecOnly = errors.New("inbox: sender: only ExecContext")

func (s sender) ExecContext(ctx context.Context, query string, _ ...any) (sql.Result, error) {
	if err := s(ctx, query); err != nil {
		return nil, err
	}
	return nil, nil //nolint:nilnil // bun's hooks take a nil result
}

func (s sender) QueryContext(context.Context, string, ...any) (*sql.Rows, error) {
	return nil, errExecOnly
}

func (s sender) QueryRowContext(ctx context.Context, _ string, _ ...any) *sql.Row {
	return errorRow(ctx, errExecOnly)
}

func (h *handle) ExecContext(ctx context.Context, query string, args ...any) (result sql.Result, err error) {
	err = h.hooked(ctx, query, args, func(ctx context.Context, query string) error {
		result, err = h.conn().ExecContext(ctx, query)
		return err
	})
	return result, err
}

func (h *handle) QueryContext(ctx context.Context, query string, args ...any) (rows *sql.Rows, err error) {
	err = h.hooked(ctx, query, args, func(ctx context.Context, query string) error {
		rows, err = h.conn().QueryContext(ctx, query)
		return err
	})
	return rows, err
}

func (h *handle) QueryRowContext(ctx context.Context, query string, args ...any) (row *sql.Row) {
	err := h.hooked(ctx, query, args, func(ctx context.Context, query string) error {
		row = h.conn().QueryRowContext(ctx, query)
		return row.Err()
	})
	if row == nil {
		return errorRow(ctx, err)
	}
	return row
}

// BeginTx opens a savepoint. Its Commit releases it, its Rollback undoes what
// came after it; neither ends the transaction of the inbox. opts is ignored, as
// bun ignores it for nested transactions.
func (h *handle) BeginTx(ctx context.Context, _ *sql.TxOptions) (bun.Tx, error) {
	h.guard.awaitRollbacks(endTimeout)
	ctx, release := h.guard.bound(ctx) // or what is left open would keep a goroutine
	if release != nil {
		context.AfterFunc(h.guard.handler, release)
	}
	return h.bridged().BeginTx(ctx, nil)
}

// bridged is the database that leads back to this handle.
func (h *handle) bridged() *bun.DB {
	h.guard.mu.Lock()
	defer h.guard.mu.Unlock()
	if h.nested == nil {
		h.nested = bun.NewDB(sql.OpenDB(bridge{h}), h.db.Dialect())
	}
	return h.nested
}

// RunInTx runs fn in a savepoint, with the caller's own context.
func (h *handle) RunInTx(ctx context.Context, opts *sql.TxOptions, fn func(ctx context.Context, tx bun.Tx) error) error {
	tx, err := h.BeginTx(ctx, opts)
	if err != nil {
		return err
	}
	done := false
	defer func() {
		if !done { // panic or Goexit
			_ = tx.Rollback()
		}
	}()
	err = fn(ctx, tx)
	done = true
	// database/sql rolls back by itself when ctx has ended.
	defer h.guard.awaitRollbacks(endTimeout)
	if err == nil {
		return tx.Commit()
	}
	if undo := tx.Rollback(); undo != nil && !errors.Is(undo, sql.ErrTxDone) {
		return errors.Join(err, undo)
	}
	return err
}

// close ends what BeginTx opened.
func (h *handle) close() {
	h.guard.mu.Lock()
	nested := h.nested
	h.nested = nil
	h.guard.mu.Unlock()
	if nested != nil {
		_ = nested.Close()
	}
}
