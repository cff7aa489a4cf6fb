package inbox

import (
	"context"
	"database/sql"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/mediator"
)

type preparedJob struct{ Text string }

// openPrepared opens an inbox whose pool has one connection, and a table for its
// handler.
func openPrepared(t *testing.T) (*Repository, *sql.DB) {
	t.Helper()
	db, err := testdb.OpenSQLite(testdb.SQLiteFile(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(1)
	names := NewNameMap()
	Register[preparedJob](names, "job")
	repo, err := NewRepository(db, names, Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := repo.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE effects (text TEXT)"); err != nil {
		t.Fatal(err)
	}
	return repo, db.DB
}

// drainPrepared accepts and processes one message after the other.
func drainPrepared(t *testing.T, repo *Repository, handler func(ctx context.Context, j preparedJob) error, texts ...string) {
	t.Helper()
	requests := mediator.NewRequestMap()
	mediator.BindRequest(requests, func(ctx context.Context, j preparedJob) (struct{}, error) { return struct{}{}, handler(ctx, j) })
	proc, err := NewProcessor(repo, ProcessorConfig{Requests: mediator.NewRequestMediator(requests)})
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range texts {
		if _, err := repo.Accept(t.Context(), []Entry{{MessageID: NewMessageID(), Message: preparedJob{text}}}); err != nil {
			t.Fatal(err)
		}
		if n, err := proc.Drain(t.Context()); n != 1 || err != nil {
			t.Fatalf("message %d: processed %d: %v", i, n, err)
		}
	}
}

// ready tells which of the texts are prepared.
func (p *prepared) ready() (texts map[string]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	texts = map[string]bool{}
	for text, statement := range p.byText {
		if statement != nil {
			texts[text] = true
		}
	}
	return texts
}

func TestSQLiteStatementsStayPrepared(t *testing.T) {
	t.Parallel()
	repo, db := openPrepared(t)
	const effect = "INSERT INTO effects (text) VALUES (?)"
	const two = "INSERT INTO effects (text) VALUES (?); INSERT INTO effects (text) VALUES ('second')"
	handler := func(ctx context.Context, j preparedJob) error {
		conn := SQL(ctx, db)
		for _, text := range []string{effect, two} {
			if _, err := conn.ExecContext(ctx, text, j.Text); err != nil {
				return err
			}
		}
		// A statement runs again while its rows are being read.
		outer, err := conn.QueryContext(ctx, "SELECT text FROM effects WHERE text <> ?", "none")
		if err != nil {
			return err
		}
		defer func() { _ = outer.Close() }()
		for n := 0; outer.Next(); n++ {
			inner, seen := 0, ""
			if err := outer.Scan(&seen); err != nil {
				return err
			}
			rows, err := conn.QueryContext(ctx, "SELECT text FROM effects WHERE text <> ?", "none")
			if err != nil {
				return err
			}
			for rows.Next() {
				inner++
			}
			if err := rows.Close(); err != nil || inner < n {
				return fmt.Errorf("the inner rows are %d: %w", inner, err)
			}
		}
		return outer.Err()
	}
	drainPrepared(t, repo, handler, "a", "b", "c")
	var rows int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM effects WHERE text IN ('a', 'b', 'c', 'second')").Scan(&rows); err != nil || rows != 9 {
		t.Errorf("%d effects, want 9: %v", rows, err)
	}
	ready := repo.prepared.ready()
	for _, template := range []string{sqliteLock, sqliteInsertOne, sqliteQueueOne, sqliteDue, sqliteClaim, sqliteDelete, sqliteProcessed} {
		if !ready[repo.text(template)] {
			t.Errorf("not prepared: %s", template)
		}
	}
	if !ready[effect] {
		t.Error("the handler's statement is not prepared")
	}
	if ready[two] {
		t.Error("a text of two statements was prepared as if it were one")
	}
}

// Texts that never come again do not fill the memory, and one that cannot be
// prepared outside of its transaction works all the same.
func TestSQLiteStatementsAreNotKeptWithoutLimit(t *testing.T) {
	t.Parallel()
	repo, db := openPrepared(t)
	handler := func(ctx context.Context, j preparedJob) error {
		conn := SQL(ctx, db)
		if _, err := conn.ExecContext(ctx, "CREATE TABLE brief (text TEXT)"); err != nil {
			return err
		}
		if _, err := conn.ExecContext(ctx, "INSERT INTO brief (text) VALUES (?)", j.Text); err != nil {
			return err
		}
		for i := range preparedLimit {
			if _, err := conn.ExecContext(ctx, fmt.Sprintf("INSERT INTO effects (text) SELECT ? FROM brief /* %d */", i), j.Text); err != nil {
				return err
			}
		}
		_, err := conn.ExecContext(ctx, "DROP TABLE brief")
		return err
	}
	drainPrepared(t, repo, handler, "a", "b", "c")
	var rows int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM effects").Scan(&rows); err != nil || rows != 3*preparedLimit {
		t.Errorf("%d effects, want %d: %v", rows, 3*preparedLimit, err)
	}
	if repo.prepared.mu.Lock(); len(repo.prepared.byText) > preparedLimit {
		t.Errorf("%d texts are kept", len(repo.prepared.byText))
	}
	repo.prepared.mu.Unlock()
}

// A repository that nobody uses any more leaves nothing on the connections.
func TestSQLiteStatementsEndWithTheRepository(t *testing.T) {
	t.Parallel()
	repo, _ := openPrepared(t)
	nothing := func(context.Context, preparedJob) error { return nil }
	drainPrepared(t, repo, nothing, "a", "b")
	statement := repo.prepared.use(repo.text(sqliteClaim))
	if statement == nil {
		t.Fatal("the claim is not prepared")
	}
	repo = nil
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		runtime.GC()
		rows, err := statement.QueryContext(t.Context(), "job", "", "job", "[]", 1)
		if err != nil {
			if err.Error() != "sql: statement is closed" {
				t.Error(err)
			}
			return
		}
		_ = rows.Close()
		if time.Now().After(deadline) {
			t.Fatal("the statements are still open")
		}
	}
}
