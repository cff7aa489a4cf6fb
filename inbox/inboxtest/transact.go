package inboxtest

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
)

var transactCases = []Case{
	{
		Name: "Add never commits and Accept does",
		Rule: "Add stores in the transaction of its caller; Accept returns after the commit.",
		Body: addNeverCommits,
	},
	{
		Name: "a repeat in the same transaction is a duplicate",
		Rule: "Duplicate is reported for an identity that is committed, or was stored earlier in the same transaction.",
		Body: repeatInOneTransaction,
	},
	{
		Name: "an empty batch sends no SQL",
		Rule: "An empty batch is no error.",
		Body: emptyBatch,
	},
	{
		Name: "anything but a transaction is refused",
		Rule: "Locks and atomicity would end with the statement: a pool or a connection is a typed error.",
		Body: refusesPools,
	},
	{
		Name: "any transaction of the database will do",
		Rule: "Add takes a bun.Tx and a *sql.Tx that somebody else began.",
		Body: takesTransactions,
	},
	{
		Name: "a handler adds messages in its own transaction",
		Rule: "What a handler adds is stored if and only if the handler's message is settled.",
		Body: addInHandler,
	},
	{
		Name: "acceptors that race on the same ids store each once",
		Rule: "However many acceptors at once, in whatever order: one effect, and no deadlock.",
		Body: racingAcceptors,
	},
	{
		Name: "a batch is one statement",
		Rule: "Add of 1,000 entries is one round trip, and so is settling a batch (SQLite: two statements each).",
		Body: oneStatement,
	},
}

func addNeverCommits(t *testing.T, e *Env) {
	tx, err := e.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	outcomes, err := e.Repo.Add(t.Context(), tx, e.Entries("a", "b"))
	if err != nil {
		t.Fatal(err)
	}
	checkKinds(t, outcomes, inbox.Stored, inbox.Stored)
	if err := tx.Rollback(); err != nil {
		t.Fatalf("the transaction was ended by Add: %v", err)
	}
	if n := e.messages(t) + e.Count(t, `SELECT count(*) FROM inbox_queue`); n != 0 {
		t.Errorf("%d rows after the rollback", n)
	}
	accepted(t, e.Repo, e.Entries("a", "b"), inbox.Stored, inbox.Stored)
	if n := e.DB.Stats().InUse; n != 0 {
		t.Errorf("Accept has left %d connections open", n)
	}
	if n := e.messages(t); n != 2 {
		t.Errorf("%d messages after Accept", n)
	}
}

func repeatInOneTransaction(t *testing.T, e *Env) {
	e.begun(t, func(tx bun.Tx) {
		for i, want := range []inbox.OutcomeKind{inbox.Stored, inbox.Duplicate, inbox.Mismatch} {
			entries := e.Entries("a")
			if want == inbox.Mismatch {
				entries[0].Message = Job{ID: "a", Note: "another body"}
			}
			outcomes, err := e.Repo.Add(t.Context(), tx, entries)
			if err != nil {
				t.Fatalf("call %d: %v", i, err)
			}
			checkKinds(t, outcomes, want)
		}
	})
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
	e.Expect(t, "a", Processed, 0)
}

func emptyBatch(t *testing.T, e *Env) {
	repo, seen := e.watched(t, inbox.Config{})
	for _, entries := range [][]inbox.Entry{nil, {}} {
		e.begun(t, func(tx bun.Tx) {
			if outcomes, err := repo.Add(t.Context(), tx, entries); len(outcomes) != 0 || err != nil {
				t.Errorf("Add: %v, %v", outcomes, err)
			}
		})
		accepted(t, repo, entries)
	}
	if texts := seen.sent(""); len(texts) != 0 {
		t.Errorf("sent %q", texts)
	}
	accepted(t, repo, e.Entries("a"), inbox.Stored)
	if len(seen.sent("")) == 0 {
		t.Error("the hook sees nothing")
	}
}

func racingAcceptors(t *testing.T, e *Env) {
	const acceptors, messages, batch = 8, 200, 25
	ids := make([]string, messages)
	for i := range ids {
		ids[i] = "race-" + string(rune('a'+i%26)) + string(rune('0'+i/26))
	}
	kinds := make([]map[inbox.OutcomeKind]int, acceptors)
	var group sync.WaitGroup
	for n := range acceptors {
		kinds[n] = map[inbox.OutcomeKind]int{}
		mine := slices.Clone(ids)
		rand.Shuffle(messages, func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
		group.Go(func() {
			for some := range slices.Chunk(mine, batch) {
				outcomes, err := e.acceptOrAdd(t, n%2 == 0, e.Entries(some...))
				if err != nil {
					t.Errorf("acceptor %d: %v", n, err)
				}
				for _, o := range outcomes {
					kinds[n][o.Kind]++
				}
			}
		})
	}
	group.Wait()
	total := map[inbox.OutcomeKind]int{}
	for _, some := range kinds {
		for kind, n := range some {
			total[kind] += n
		}
	}
	want := map[inbox.OutcomeKind]int{inbox.Stored: messages, inbox.Duplicate: (acceptors - 1) * messages}
	if !reflect.DeepEqual(total, want) {
		t.Errorf("outcomes %v, want %v", total, want)
	}
	if n := e.messages(t); n != messages {
		t.Errorf("%d rows for %d messages", n, messages)
	}
}

// acceptOrAdd stores entries with Accept, which would hide a deadlock behind a
// retry, or with Add in a transaction, which would not.
func (e *Env) acceptOrAdd(t *testing.T, accept bool, entries []inbox.Entry) (outcomes []inbox.Outcome, err error) {
	if accept {
		return e.Repo.Accept(t.Context(), entries)
	}
	err = e.DB.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
		outcomes, err = e.Repo.Add(ctx, tx, entries)
		return err
	})
	return outcomes, err
}

func oneStatement(t *testing.T, e *Env) {
	want := 2
	if e.Postgres() {
		want = 1
	}
	repo, seen := e.watched(t, inbox.Config{})
	ids := make([]string, 1000)
	for i := range ids {
		ids[i] = inbox.NewMessageID()
	}
	e.begun(t, func(tx bun.Tx) {
		if _, err := repo.Add(t.Context(), tx, e.Entries(ids...)); err != nil {
			t.Fatal(err)
		}
	})
	// Once a second, and only with DriverArgs, the sizes of the tables are looked up.
	texts := slices.DeleteFunc(seen.sent(""), func(text string) bool { return strings.Contains(text, "pg_relation_size") })
	if len(texts) != want {
		t.Errorf("Add of 1,000 entries sent %d statements, want %d", len(texts), want)
	}

	e.Exec(t, `DELETE FROM inbox_queue`)
	e.Exec(t, `DELETE FROM inbox_messages`)
	e.Accept(t, ids[:32]...)
	e.Repo = repo
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{BatchSize: 32}))
	settling := 0
	for _, text := range seen.sent("inbox_") {
		if strings.Contains(text, "DELETE FROM \"inbox_queue\"") || strings.Contains(text, "UPDATE \"inbox_messages\"") {
			settling++
		}
	}
	if settling != want {
		t.Errorf("settling 32 messages took %d statements, want %d", settling, want)
	}
	if n := len(e.Effects(t)); n != 32 {
		t.Errorf("%d effects", n)
	}
}

func refusesPools(t *testing.T, e *Env) {
	conn, err := e.DB.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for name, tx := range map[string]bun.IConn{
		"nil":              nil,
		"*bun.DB":          e.DB,
		"*sql.DB":          e.DB.DB,
		"bun.Conn":         conn,
		"*sql.Conn":        conn.Conn,
		"nil *sql.Tx":      (*sql.Tx)(nil),
		"nil *bun.Tx":      (*bun.Tx)(nil),
		"zero bun.Tx":      bun.Tx{},
		"pointer to zero":  &bun.Tx{},
		"inbox.DB outside": inbox.DB(t.Context(), e.DB),
	} {
		if _, err := e.Repo.Add(t.Context(), tx, e.Entries("a")); !errors.Is(err, inbox.ErrNoTransaction) {
			t.Errorf("Add in %s: %v", name, err)
		}
		if _, err := e.Repo.GetMany(t.Context(), tx, 1); !errors.Is(err, inbox.ErrNoTransaction) {
			t.Errorf("GetMany in %s: %v", name, err)
		}
	}
	_ = conn.Close()
	if n := e.messages(t); n != 0 {
		t.Errorf("%d messages stored", n)
	}
}

func takesTransactions(t *testing.T, e *Env) {
	foreign, err := e.DB.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = foreign.Rollback() }()
	if _, err := e.Repo.Add(t.Context(), foreign, e.Entries("foreign")); err != nil {
		t.Fatal(err)
	}
	if err := foreign.Commit(); err != nil {
		t.Fatal(err)
	}
	e.begun(t, func(tx bun.Tx) {
		if _, err := e.Repo.Add(t.Context(), &tx, e.Entries("pointer")); err != nil {
			t.Fatal(err)
		}
	})
	err = e.DB.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
		return tx.RunInTx(ctx, nil, func(ctx context.Context, nested bun.Tx) error {
			_, err := e.Repo.Add(ctx, nested, e.Entries("nested"))
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
	for _, id := range []string{"foreign", "pointer", "nested"} {
		e.Expect(t, id, Processed, 0)
	}
}

func addInHandler(t *testing.T, e *Env) {
	add := func(ctx context.Context, tx bun.IDB, id string, want inbox.OutcomeKind) error {
		outcomes, err := e.Repo.Add(ctx, tx, e.Entries(id))
		if err == nil && outcomes[0].Kind != want {
			t.Errorf("%s is %v in the handler, want %v", id, outcomes[0].Kind, want)
		}
		return err
	}
	e.On("parent", func(ctx context.Context, job Job) error {
		db := inbox.DB(ctx, e.DB)
		return errors.Join(add(ctx, db, "child", inbox.Stored), add(ctx, db, "child", inbox.Duplicate),
			db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
				return errors.Join(add(ctx, tx, "grandchild", inbox.Stored), add(ctx, tx, "child", inbox.Duplicate))
			}), e.Effect(ctx, job.ID))
	})
	e.On("failing", func(ctx context.Context, _ Job) error {
		return errors.Join(add(ctx, inbox.DB(ctx, e.DB), "orphan", inbox.Stored), inbox.Permanent(errors.New("no")))
	})
	e.Accept(t, "parent", "failing")
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
	e.Expect(t, "failing", Dead, 1)
	for _, id := range []string{"parent", "child", "grandchild"} {
		e.Expect(t, id, Processed, 0)
	}
	if n := e.messages(t); n != 4 {
		t.Errorf("%d messages, want 4: what the failing handler added must be gone", n)
	}
}
