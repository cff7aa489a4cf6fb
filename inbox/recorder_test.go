package inbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/letterbox-go/letterbox/internal/testdb"
)

// statement is what was sent to PostgreSQL: a text, and the arguments that were
// bound to it.
type statement struct {
	text string
	args []string
}

// recorder keeps the statements that were sent.
type recorder struct {
	mu   sync.Mutex
	sent []statement
}

// TraceQueryStart implements pgx.QueryTracer.
func (r *recorder) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	s := statement{text: data.SQL}
	for _, arg := range data.Args {
		switch arg := arg.(type) {
		case pgx.QueryExecMode, pgx.QueryResultFormatsByOID:
		case []byte:
			s.args = append(s.args, fmt.Sprintf(`\x%x`, arg))
		default:
			s.args = append(s.args, fmt.Sprint(arg))
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = append(r.sent, s)
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (*recorder) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// all returns the statements that were sent since the last call.
func (r *recorder) all() []statement {
	r.mu.Lock()
	defer r.mu.Unlock()
	sent := r.sent
	r.sent = nil
	return sent
}

// last returns the last statement whose text or arguments contain part.
func (r *recorder) last(t *testing.T, part string) statement {
	t.Helper()
	s, ok := r.find(func(s statement) bool { return strings.Contains(s.text+strings.Join(s.args, "\n"), part) })
	if !ok {
		t.Fatalf("no statement with %q was sent", part)
	}
	return s
}

func (r *recorder) find(is func(statement) bool) (statement, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(r.sent) - 1; i >= 0; i-- {
		if is(r.sent[i]) {
			return r.sent[i], true
		}
	}
	return statement{}, false
}

// recorded returns a node on PostgreSQL whose statements are kept.
func recorded(t *testing.T) (*node, *recorder) {
	t.Helper()
	n := openNode(t, target{"pgx", testdb.Postgres(t)}, false)
	config, err := pgx.ParseConfig(n.target.DSN)
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{}
	config.Tracer = r
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	n.db = bun.NewDB(stdlib.OpenDB(*config), pgdialect.New())
	t.Cleanup(func() { n.db.Close() })
	n.reopen()
	return n, r
}

// explain runs a statement under EXPLAIN in a transaction that is rolled back. One
// with arguments is prepared first, so that plan_cache_mode counts.
func (n *node) explain(t *testing.T, s statement, settings ...string) (plan, string) {
	t.Helper()
	tx, err := n.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	exec := func(query string) {
		t.Helper()
		if _, err := tx.Tx.ExecContext(t.Context(), query); err != nil {
			t.Fatalf("%v\n%s", err, query)
		}
	}
	for _, setting := range settings {
		exec(setting)
	}
	query := s.text
	if len(s.args) > 0 {
		exec("PREPARE explained AS " + s.text)
		defer tx.Tx.ExecContext(context.WithoutCancel(t.Context()), "DEALLOCATE explained")
		literals := make([]string, len(s.args))
		for i, arg := range s.args {
			literals[i] = "'" + strings.ReplaceAll(arg, "'", "''") + "'"
		}
		query = "EXECUTE explained (" + strings.Join(literals, ", ") + ")"
	}
	var text string
	if err := tx.Tx.QueryRowContext(t.Context(), `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) `+query).Scan(&text); err != nil {
		t.Fatalf("%v\n%s\n%s", err, s.text, query)
	}
	var plans []struct{ Plan plan }
	if err := json.Unmarshal([]byte(text), &plans); err != nil {
		t.Fatal(err)
	}
	return plans[0].Plan, text
}
