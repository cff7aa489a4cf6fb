package inboxtest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
)

var handleCases = []Case{
	{
		Name: "DB gives the transaction for its own pool only",
		Rule: "Another *bun.DB on the same pool gets the inbox's transaction; another pool, a transaction, and a call from outside get the fallback.",
		Body: fallbacks,
	},
	{
		Name: "a handler works outside the inbox",
		Rule: "Called directly, it uses the fallback.",
		Body: calledDirectly,
	},
	{
		Name: "the handle answers as the database does",
		Rule: "Builders, relations, raw SQL, rows and statements give the same results through the handle, a nested transaction and bun.DB.",
		Body: sameAnswers,
	},
	{
		Name: "query hooks see a handler's statements",
		Rule: "Each statement passes the hooks of the application's bun.DB once.",
		Body: hooksSee,
	},
	{
		Name: "the handle dies with its handler",
		Rule: "A goroutine that is left behind gets an error and writes nothing.",
		Body: handleDies,
	},
}

// nowhere is a pool without a database.
type nowhere struct{}

func (nowhere) Connect(context.Context) (driver.Conn, error) { return nil, errBoom }
func (nowhere) Driver() driver.Driver                        { return nil }

func fallbacks(t *testing.T, e *Env) {
	other := bun.NewDB(sql.OpenDB(nowhere{}), e.DB.Dialect())
	defer other.Close()
	if inbox.DB(t.Context(), e.DB) != bun.IDB(e.DB) {
		t.Error("outside the inbox, DB gives something else than the fallback")
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("MustDB does not panic outside the inbox")
			}
		}()
		inbox.MustDB(t.Context())
	}()
	var tx bun.Tx
	e.On("a", func(ctx context.Context, job Job) error {
		ambient := inbox.MustDB(ctx)
		if inbox.DB(ctx, e.DB) != ambient {
			t.Error("MustDB and DB differ")
		}
		twin := bun.NewDB(e.DB.DB, e.DB.Dialect())
		if inbox.DB(ctx, twin) != ambient {
			t.Error("another bun.DB on the pool does not get the transaction")
		}
		if inbox.DB(ctx, other) != bun.IDB(other) {
			t.Error("another pool gets the transaction")
		}
		if got, ok := inbox.DB(ctx, tx).(bun.Tx); !ok || got.Tx != tx.Tx {
			t.Error("a transaction is not returned as it is")
		}
		return insert(ctx, inbox.DB(ctx, twin), job.ID)
	})
	e.On("fails", func(ctx context.Context, job Job) error {
		return errors.Join(insert(ctx, inbox.DB(ctx, bun.NewDB(e.DB.DB, e.DB.Dialect())), job.ID), errBoom)
	})
	e.Accept(t, "a", "fails")
	var err error
	if e.Postgres() { // SQLite's other transaction would hold the write lock
		if tx, err = e.DB.BeginTx(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
	}
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{Backoff: later}))
	e.Expect(t, "a", Processed, 0)
	e.Expect(t, "fails", Pending, 1)
	e.expectEffects(t, "a")
	if tx.Tx != nil {
		_ = tx.Rollback()
	}
}

func calledDirectly(t *testing.T, e *Env) {
	if err := e.handle(t.Context(), Job{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	e.begun(t, func(tx bun.Tx) {
		if err := insert(t.Context(), inbox.DB(t.Context(), tx), "b"); err != nil {
			t.Fatal(err)
		}
	})
	e.expectEffects(t, "a", "b")
}

type author struct {
	bun.BaseModel `bun:"table:authors,alias:a"`

	ID    int64 `bun:",pk,autoincrement"`
	Name  string
	Born  time.Time
	Photo []byte
	Tags  map[string]any `bun:"type:json"`
	Score *int64
	Rate  float64
	Alive bool
	Note  sql.NullString
	Books []*book `bun:"rel:has-many,join:id=author_id"`
}

type book struct {
	bun.BaseModel `bun:"table:books,alias:b"`

	ID       int64 `bun:",pk,autoincrement"`
	AuthorID int64
	Title    string
	Author   *author `bun:"rel:belongs-to,join:author_id=id"`
}

// questions are asked in three places and have to be answered alike.
func questions(ctx context.Context, db bun.IDB) (answers []string, err error) {
	add := func(name string, value any, failure error) {
		text, marshal := json.Marshal(value)
		answers = append(answers, fmt.Sprintf("%s: %s", name, text))
		err = errors.Join(err, failure, marshal)
	}
	var authors []author
	n, failure := db.NewSelect().Model(&authors).Relation("Books").OrderExpr("a.id").Limit(2).ScanAndCount(ctx)
	add("ScanAndCount", []any{n, authors}, failure)
	var books []book
	add("belongs-to", &books, db.NewSelect().Model(&books).Relation("Author").OrderExpr("b.id").Scan(ctx))
	exists, failure := db.NewSelect().Model((*author)(nil)).Where("name = ?", "it's ?").Exists(ctx)
	add("Exists", exists, failure)
	count, failure := db.NewSelect().Model((*book)(nil)).Count(ctx)
	add("Count", count, failure)
	var maps []map[string]any
	failure = db.NewRaw(`SELECT name, score, rate, note FROM authors ORDER BY id`).Scan(ctx, &maps)
	add("maps", maps, failure)
	var name string
	add("QueryRow", &name, db.QueryRowContext(ctx, `SELECT name FROM authors WHERE id = ?`, 1).Scan(&name))
	none := db.QueryRowContext(ctx, `SELECT name FROM authors WHERE id = ?`, -1).Scan(&name)
	add("no row", errors.Is(none, sql.ErrNoRows), nil)
	rows, failure := db.QueryContext(ctx, `SELECT id, note, photo FROM authors ORDER BY id`)
	if failure != nil {
		return nil, failure
	}
	defer rows.Close()
	columns, failure := rows.Columns()
	add("columns", columns, failure)
	for rows.Next() {
		var id int64
		var note sql.NullString
		var photo []byte
		add("row", []any{&id, &note, &photo}, rows.Scan(&id, &note, &photo))
	}
	add("rows", nil, rows.Err())
	return answers, err
}

// tell writes one author with a book, in the ways of the builders.
func tell(ctx context.Context, db bun.IDB, seed int64) error {
	a := &author{
		Name: fmt.Sprintf("author %d", seed), Born: time.Date(1955, 6, 8, 12, 30, 15, 123456000, time.UTC),
		Photo: []byte{0, 1, 0xff, '\'', '?'}, Tags: map[string]any{"a": "\\u0000 '?", "b": nil},
		Rate: 0.1, Alive: seed%2 == 0,
	}
	if seed == 2 {
		a.Score, a.Note = &seed, sql.NullString{String: "note", Valid: true}
	}
	if _, err := db.NewInsert().Model(a).Exec(ctx); err != nil {
		return err
	}
	if a.ID == 0 {
		return errors.New("no id came back")
	}
	if _, err := db.NewInsert().Model(&[]book{{AuthorID: a.ID, Title: "one"}, {AuthorID: a.ID, Title: "two"}}).Exec(ctx); err != nil {
		return err
	}
	result, err := db.NewUpdate().Model(a).Set("name = ?", "it's ?").WherePK().Exec(ctx)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n != 1 {
		return fmt.Errorf("%d rows affected: %w", n, err)
	}
	if _, err = db.NewDelete().Model((*book)(nil)).Where("author_id = ?", a.ID).Where("title = ?", "one").Exec(ctx); err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, `INSERT INTO books (author_id, title) VALUES (?, ?)`, a.ID, "it's a ?")
	return err
}

func sameAnswers(t *testing.T, e *Env) {
	for _, model := range []any{(*author)(nil), (*book)(nil)} {
		if _, err := e.DB.NewCreateTable().Model(model).Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	nested := func(do func(ctx context.Context, db bun.IDB) error) func(context.Context, bun.IDB) error {
		return func(ctx context.Context, db bun.IDB) error {
			return db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error { return do(ctx, tx) })
		}
	}
	inHandler := func(id string, do func(ctx context.Context, db bun.IDB) error) {
		e.On(id, func(ctx context.Context, _ Job) error { return do(ctx, inbox.DB(ctx, e.DB)) })
		e.Accept(t, id)
		e.Drain(t, e.Processor(t, inbox.ProcessorConfig{Backoff: later}))
		e.Expect(t, id, Processed, 0)
	}
	write := func(ctx context.Context, db bun.IDB) error { return errors.Join(tell(ctx, db, 1), tell(ctx, db, 2)) }
	places := map[string]func(name string, do func(ctx context.Context, db bun.IDB) error){
		"bun.DB": func(_ string, do func(ctx context.Context, db bun.IDB) error) {
			if err := do(t.Context(), e.DB); err != nil {
				t.Fatal(err)
			}
		},
		"handle": inHandler,
		"nested": func(name string, do func(ctx context.Context, db bun.IDB) error) { inHandler(name, nested(do)) },
		"nested twice": func(name string, do func(ctx context.Context, db bun.IDB) error) {
			inHandler(name, nested(nested(do)))
		},
	}
	var want string
	for writer, place := range places {
		for _, model := range []any{(*author)(nil), (*book)(nil)} {
			if err := e.DB.ResetModel(t.Context(), model); err != nil {
				t.Fatal(err)
			}
		}
		place("write, "+writer, write)
		for reader, place := range places {
			var got []string
			place(fmt.Sprintf("read, %s, %s", writer, reader), func(ctx context.Context, db bun.IDB) (err error) {
				got, err = questions(ctx, db)
				return err
			})
			text := strings.Join(got, "\n")
			if want == "" {
				want = text
			}
			if text != want {
				t.Errorf("written by %s, read by %s:\n%s\nwant:\n%s", writer, reader, text, want)
			}
		}
	}
	if !strings.Contains(want, `"it's a ?"`) || !strings.Contains(want, ":30:15.123456") {
		t.Errorf("the answers are no answers:\n%s", want)
	}
}

func hooksSee(t *testing.T, e *Env) {
	repo, seen := e.watched(t, inbox.Config{})
	e.Repo = repo
	e.On("a", func(ctx context.Context, job Job) error {
		db := inbox.DB(ctx, e.DB)
		for name, way := range allWays() {
			query := fmt.Sprintf(`SELECT '<%s>'`, name)
			if strings.HasPrefix(name, "an expression") {
				query = "SELECT '<" + name + ">'"
			}
			if err := way(ctx, db, query); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return e.Effect(ctx, job.ID)
	})
	e.Accept(t, "a")
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
	e.Expect(t, "a", Processed, 0)
	sent := strings.Join(seen.sent("<"), "\n")
	for name := range allWays() {
		if n := strings.Count(sent, "<"+name+">"); n != 1 {
			t.Errorf("%s: a hook saw it %d times", name, n)
		}
	}
}

func handleDies(t *testing.T, e *Env) {
	var db, other bun.IDB
	var tx, left bun.Tx
	var ctx context.Context
	e.On("a", func(inner context.Context, job Job) (err error) {
		ctx, db = context.WithoutCancel(inner), inbox.DB(inner, e.DB)
		if tx, err = db.BeginTx(ctx, nil); err != nil {
			return err
		}
		return errors.Join(insert(inner, tx, job.ID), tx.Commit())
	})
	e.On("b", func(inner context.Context, _ Job) (err error) {
		// The transaction of the batch lives on, and this is another message.
		if err := insert(context.WithoutCancel(ctx), db, "late"); err == nil || !strings.Contains(err.Error(), "handler has returned") {
			t.Errorf("while the next message is processed: %v", err)
		}
		other = inbox.MustDB(inner)
		left, err = other.BeginTx(context.WithoutCancel(inner), nil)
		return err
	})
	e.Accept(t, "a", "b")
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{Backoff: later}))
	e.Expect(t, "a", Processed, 0)
	e.Expect(t, "b", Pending, 1)
	for _, db := range []bun.IDB{db, other, tx, left} {
		for name, way := range allWays() {
			if err := way(ctx, db, `INSERT INTO effects (job) VALUES ('late')`); err == nil {
				t.Errorf("%T: %s works after the handler", db, name)
			}
		}
		if _, err := db.NewInsert().Model(&map[string]any{"job": "late"}).TableExpr("effects").Exec(ctx); err == nil {
			t.Errorf("%T: a builder works after the handler", db)
		}
	}
	if err := left.Commit(); err == nil {
		t.Error("a nested transaction is committed after the handler")
	}
	if inbox.DB(ctx, e.DB) == bun.IDB(e.DB) {
		t.Error("the fallback is given to a goroutine left behind: it would write on its own")
	}
	if _, err := e.Repo.Add(ctx, db, e.Entries("late")); err == nil {
		t.Error("Add works after the handler")
	}
	e.expectEffects(t, "a")
}
