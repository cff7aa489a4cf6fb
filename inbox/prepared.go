package inbox

import (
	"context"
	"database/sql"
	"strings"
	"sync"
)

// preparedLimit bounds how many statements stay prepared: texts of handlers are
// among them.
const preparedLimit = 100

// prepared are the statements of SQLite that stay prepared on each connection:
// to parse one costs as much as to run it. PostgreSQL's drivers keep their own.
type prepared struct {
	db *sql.DB

	mu     sync.Mutex
	byText map[string]*sql.Stmt // nil while it is only wanted, or could not be prepared
	wanted []string
}

func newPrepared(db *sql.DB) *prepared { return &prepared{db: db, byText: map[string]*sql.Stmt{}} }

// use returns a statement. The first time there is none: it is prepared by catchUp.
func (p *prepared) use(text string) *sql.Stmt {
	p.mu.Lock()
	defer p.mu.Unlock()
	statement, known := p.byText[text]
	if !known && len(p.byText) < preparedLimit {
		p.byText[text] = nil
		p.wanted = append(p.wanted, text)
	}
	return statement
}

// catchUp prepares what was wanted. It needs a connection while the caller holds
// none, since the pool may have one only.
func (p *prepared) catchUp(ctx context.Context) {
	p.mu.Lock()
	wanted := p.wanted
	p.wanted = nil
	p.mu.Unlock()
	for _, text := range wanted {
		statement, err := p.db.PrepareContext(ctx, text)
		p.mu.Lock()
		if err == nil {
			p.byText[text] = statement
		} else if ctx.Err() != nil {
			delete(p.byText, text)
		}
		p.mu.Unlock()
	}
}

func (p *prepared) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, statement := range p.byText {
		if statement != nil {
			_ = statement.Close()
		}
	}
}

// on is the way to q for statements that repeat, with arguments for the driver.
func (p *prepared) on(q querier) querier { return preparedOn{q, p} }

type preparedOn struct {
	querier
	prepared *prepared
}

func (o preparedOn) statement(ctx context.Context, query string) *sql.Stmt {
	switch q := o.querier.(type) {
	case *preparedTx:
		return q.statement(ctx, query)
	case *sql.DB:
		if q == o.prepared.db {
			return o.prepared.use(query)
		}
	}
	return nil
}

func (o preparedOn) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if statement := o.statement(ctx, query); statement != nil {
		return statement.ExecContext(ctx, args...)
	}
	return o.querier.ExecContext(ctx, query, args...)
}

func (o preparedOn) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if statement := o.statement(ctx, query); statement != nil {
		return statement.QueryContext(ctx, args...)
	}
	return o.querier.QueryContext(ctx, query, args...)
}

// preparedTx is a transaction on a connection that may have the statements.
type preparedTx struct {
	*sql.Tx
	prepared *prepared

	mu         sync.Mutex
	statements map[string]*sql.Stmt
}

func (t *preparedTx) statement(ctx context.Context, text string) *sql.Stmt {
	t.mu.Lock()
	defer t.mu.Unlock()
	statement, ok := t.statements[text]
	if !ok {
		if statement = t.prepared.use(text); statement != nil {
			statement = t.StmtContext(context.WithoutCancel(ctx), statement)
		}
		if t.statements == nil {
			t.statements = map[string]*sql.Stmt{}
		}
		t.statements[text] = statement
	}
	return statement
}

// ExecContext keeps single statements with arguments prepared, those of handlers
// too. It does not so for queries: while rows of one are read, it cannot run again.
func (t *preparedTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if len(args) > 0 && !strings.Contains(query, ";") {
		if statement := t.statement(ctx, query); statement != nil {
			return statement.ExecContext(ctx, args...)
		}
	}
	return t.Tx.ExecContext(ctx, query, args...)
}
