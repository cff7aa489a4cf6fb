package backpressure_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

// recorder keeps the statements of a call.
type recorder struct {
	mu         sync.Mutex
	statements []string
}

func (r *recorder) BeforeQuery(ctx context.Context, query *bun.QueryEvent) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if strings.HasPrefix(strings.TrimSpace(query.Query), "SELECT") {
		r.statements = append(r.statements, query.Query)
	}
	return ctx
}

func (r *recorder) AfterQuery(context.Context, *bun.QueryEvent) {}

// A long queue that came so fast that there are no statistics yet is just when
// the gate is needed: the query must not read all of it.
func TestTheBacklogIsReadInIndexOrder(t *testing.T) {
	t.Parallel()
	db := testdb.PGX(t)
	var queries recorder
	names := inbox.NewNameMap()
	inbox.Register[job](names, "job")
	repo, err := inbox.NewRepository(db.WithQueryHook(&queries), names, inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := repo.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = db.ExecContext(t.Context(), `ALTER TABLE inbox_queue SET (autovacuum_enabled = false);
		INSERT INTO inbox_queue (id, name, ordering_key, due, state)
		SELECT g, 'job', '', now(), CASE WHEN g <= 20000 THEN 2 ELSE 0 END FROM generate_series(1, 300000) g`)
	if err != nil {
		t.Fatal(err)
	}
	queries.statements = nil
	if backlog, err := repo.Backlog(t.Context(), 1000); err != nil || backlog.Pending != 1000 {
		t.Fatal(backlog, err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	explained := 0
	for _, statement := range queries.statements {
		if !strings.Contains(statement, "inbox_queue") { // settings: they hold for what follows
			if _, err := tx.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
			continue
		}
		var lines []string
		if err := tx.NewRaw("EXPLAIN "+statement).Scan(t.Context(), &lines); err != nil {
			t.Fatal(err)
		}
		plan := strings.Join(lines, "\n")
		if !strings.Contains(plan, "using inbox_queue_claim") || strings.Contains(plan, "Sort") || strings.Contains(plan, "Bitmap") || strings.Contains(plan, "Seq Scan") {
			t.Errorf("%s\n%s", statement, plan)
		}
		explained++
	}
	if explained != 2 {
		t.Errorf("%d statements on the queue, want 2", explained)
	}
}
