package inboxtest

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
)

var commitCases = []Case{
	{
		Name: "an accept that waited for a rollback stores the message",
		Rule: "Duplicate is only reported for an identity that is committed.",
		Body: func(t *testing.T, e *Env) { waitForTransaction(t, e, false) },
	},
	{
		Name: "an accept that waited for a commit reports a duplicate",
		Rule: "Duplicate is only reported for an identity that is committed.",
		Body: func(t *testing.T, e *Env) { waitForTransaction(t, e, true) },
	},
	{
		Name: "overlapping batches in opposite order do not deadlock",
		Rule: "One Add per transaction never deadlocks with others: all lock in one order.",
		Body: oppositeOrders,
	},
	{
		Name: "a duplicate newer than the snapshot is retryable",
		Rule: "In a REPEATABLE READ transaction a newer duplicate raises 40001, as a typed error.",
		Body: newerThanSnapshot,
	},
	{
		Name: "an accept does not wait for a handler that settles the same message",
		Rule: "A redelivery is answered at once, whatever the message's handler is doing.",
		Body: acceptWhileSettling,
	},
	{
		Name: "a swallowed error is not reported as success",
		Rule: "In a transaction that has failed, Add returns an error.",
		Body: addAfterError,
	},
	{
		Name: "a commit that fails is an error",
		Rule: "Accept reports success after COMMIT returned without error, and never else.",
		Body: failedCommit,
	},
	{
		Name: "no row can be in a state that nothing sees",
		Rule: "The tables themselves refuse what no claim, retry or sweep would find.",
		Body: unknownStates,
	},
}

// waitForTransaction adds a message in a transaction while another one that has
// added it is still open.
func waitForTransaction(t *testing.T, e *Env, commit bool) {
	first, err := e.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Rollback() }()
	if _, err := e.Repo.Add(t.Context(), first, e.Entries("a")); err != nil {
		t.Fatal(err)
	}
	type answer struct {
		outcomes []inbox.Outcome
		err      error
	}
	answers := make(chan answer, 1)
	go func() {
		outcomes, err := e.Repo.Accept(t.Context(), e.Entries("a"))
		answers <- answer{outcomes, err}
	}()
	if e.Postgres() {
		Eventually(t, "the second waits for the first", func() bool {
			return e.Count(t, `SELECT count(*) FROM pg_locks WHERE NOT granted AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database())`) > 0
		})
	}
	select {
	case a := <-answers:
		t.Fatalf("answered before the first transaction ended: %v, %v", a.outcomes, a.err)
	default:
	}
	want := inbox.Stored
	if commit {
		want, err = inbox.Duplicate, first.Commit()
	} else {
		err = first.Rollback()
	}
	if err != nil {
		t.Fatal(err)
	}
	a := <-answers
	if a.err != nil {
		t.Fatal(a.err)
	}
	checkKinds(t, a.outcomes, want)
	if n := e.messages(t); n != 1 {
		t.Errorf("%d rows", n)
	}
}

// oppositeOrders makes each row take its time, so that both transactions are in
// the middle of their batches at once.
func oppositeOrders(t *testing.T, e *Env) {
	if !e.Postgres() {
		t.Skip("SQLite: there is one writer at a time")
	}
	e.Exec(t, `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.2); RETURN NEW; END'`)
	e.Exec(t, `CREATE TRIGGER slow BEFORE INSERT ON inbox_messages FOR EACH ROW EXECUTE FUNCTION slow()`)
	ids := []string{"a", "b", "c", "d"}
	backwards := slices.Clone(ids)
	slices.Reverse(backwards)
	var group sync.WaitGroup
	var stored atomic.Int32
	begin := make(chan struct{})
	for _, order := range [][]string{ids, backwards} {
		tx, err := e.DB.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		group.Go(func() {
			<-begin
			// Accept would hide a deadlock behind a retry.
			outcomes, err := e.Repo.Add(t.Context(), tx, e.Entries(order...))
			if err := errors.Join(err, tx.Commit()); err != nil {
				t.Error(err)
			}
			for _, o := range outcomes {
				if o.Kind == inbox.Stored {
					stored.Add(1)
				}
			}
		})
	}
	close(begin)
	group.Wait()
	if n := int(stored.Load()); n != len(ids) || e.messages(t) != n {
		t.Errorf("%d stored and %d rows, want %d", n, e.messages(t), len(ids))
	}
}

func newerThanSnapshot(t *testing.T, e *Env) {
	if !e.Postgres() {
		t.Skip("SQLite: a transaction that writes holds the only write lock, so no duplicate can be newer than it")
	}
	e.Accept(t, "older")
	tx, err := e.DB.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	outcomes, err := e.Repo.Add(t.Context(), tx, e.Entries("older"))
	if err != nil {
		t.Fatal(err)
	}
	checkKinds(t, outcomes, inbox.Duplicate)
	e.Accept(t, "newer")
	_, err = e.Repo.Add(t.Context(), tx, e.Entries("newer"))
	var again *inbox.RetryableError
	if !errors.As(err, &again) || again.Code != "40001" {
		t.Fatalf("%v, want a RetryableError with 40001", err)
	}
}

func acceptWhileSettling(t *testing.T, e *Env) {
	if !e.Postgres() {
		t.Skip("SQLite: there is one writer; an accept waits for one handler at most, which is another rule")
	}
	e.Accept(t, "a")
	p := e.Processor(t, inbox.ProcessorConfig{})
	e.begun(t, func(tx bun.Tx) {
		claimed, err := e.Repo.GetMany(t.Context(), tx, 1)
		if err != nil || len(claimed) != 1 {
			t.Fatalf("claimed %d: %v", len(claimed), err)
		}
		answer := func(when string) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			outcomes, err := e.Repo.Accept(ctx, e.Entries("a"))
			if err != nil {
				t.Fatalf("%s: %v", when, err)
			}
			checkKinds(t, outcomes, inbox.Duplicate)
		}
		answer("while the message is claimed")
		if err := p.Process(t.Context(), tx, claimed[0]); err != nil {
			t.Fatal(err)
		}
		answer("while the message is settled and not committed")
	})
	e.Expect(t, "a", Processed, 0)
}

func addAfterError(t *testing.T, e *Env) {
	if !e.Postgres() {
		t.Skip("SQLite: a failed statement leaves the transaction as it was")
	}
	tx, err := e.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), `SELECT 1/0`); err == nil {
		t.Fatal("division by zero is no error here")
	}
	outcomes, err := e.Repo.Add(t.Context(), tx, e.Entries("a"))
	if err == nil {
		t.Errorf("Add in a failed transaction says %v", outcomes)
	}
	_ = tx.Commit()
	if n := e.messages(t); n != 0 {
		t.Errorf("%d messages", n)
	}
}

// failedCommit makes every commit with a new message fail at COMMIT itself.
func failedCommit(t *testing.T, e *Env) {
	if !e.Postgres() && e.Count(t, `SELECT foreign_keys FROM pragma_foreign_keys`) == 0 {
		t.Skip("SQLite: without foreign_keys(1) in the data source name no commit can be made to fail")
	}
	renamed := inbox.NewNameMap() // with a former name, Accept needs a transaction of several statements
	inbox.RegisterWith[Job](renamed, inbox.Registration{Name: "job", FormerNames: []string{"former_job"}})
	several, err := inbox.NewRepository(e.DB, renamed, inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	e.refuseCommits(t)
	for _, repo := range []*inbox.Repository{e.Repo, several} {
		outcomes, err := repo.Accept(t.Context(), e.Entries("a", "b"))
		if err == nil || outcomes != nil {
			t.Errorf("Accept says %v, %v", outcomes, err)
		}
		if n := e.messages(t); n != 0 {
			t.Errorf("%d messages", n)
		}
	}
	e.allowCommits(t)
	for i, repo := range []*inbox.Repository{e.Repo, several} {
		want := []inbox.OutcomeKind{inbox.Stored, inbox.Duplicate}[i]
		accepted(t, repo, e.Entries("a", "b"), want, want)
	}
}

func (e *Env) refuseCommits(t *testing.T) {
	t.Helper()
	if e.Postgres() {
		e.Exec(t, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''refused at commit''; END'`)
		e.Exec(t, `CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON inbox_messages DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()`)
		return
	}
	e.Exec(t, `CREATE TABLE parents (id INTEGER PRIMARY KEY)`)
	e.Exec(t, `CREATE TABLE children (parent INTEGER REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED)`)
	e.Exec(t, `CREATE TRIGGER refuse AFTER INSERT ON inbox_messages BEGIN INSERT INTO children VALUES (1); END`)
}

func (e *Env) allowCommits(t *testing.T) {
	t.Helper()
	if e.Postgres() {
		e.Exec(t, `DROP TRIGGER refuse ON inbox_messages`)
		return
	}
	e.Exec(t, `DROP TRIGGER refuse`)
}

func unknownStates(t *testing.T, e *Env) {
	e.Accept(t, "a")
	now := `'2024-01-01T00:00:00.000000Z'`
	for _, statement := range []string{
		`UPDATE inbox_messages SET status = 3`,
		`UPDATE inbox_messages SET status = -1`,
		`UPDATE inbox_messages SET status = NULL`,
		`UPDATE inbox_messages SET status = 1`, // without the time
		`UPDATE inbox_messages SET processed_at = ` + now,
		`UPDATE inbox_messages SET attempts = -1`,
		`UPDATE inbox_messages SET message_id = ''`,
		`UPDATE inbox_messages SET name = ''`,
		`UPDATE inbox_messages SET source = NULL`,
		`UPDATE inbox_messages SET received_at = NULL`,
		`UPDATE inbox_queue SET state = 3`,
		`UPDATE inbox_queue SET state = NULL`,
		`UPDATE inbox_queue SET due = NULL`,
		`UPDATE inbox_queue SET name = NULL`,
		`UPDATE inbox_queue SET attempts = -1`,
		`UPDATE inbox_queue SET interruptions = -1`,
		`INSERT INTO inbox_queue (id, name, ordering_key, due) SELECT id, name, ordering_key, due FROM inbox_queue`,
		`INSERT INTO inbox_messages (source, message_id, name, ordering_key, metadata, received_at) SELECT source, message_id, name, '', '', ` + now + ` FROM inbox_messages`,
	} {
		if _, err := e.DB.NewRaw(statement).Exec(t.Context()); err == nil {
			t.Errorf("allowed: %s", statement)
		}
	}
	if _, err := e.DB.NewRaw(`UPDATE inbox_messages SET attempts = 0 WHERE status = 0`).Exec(t.Context()); err != nil {
		t.Errorf("the statements fail for another reason: %v", err)
	}
	if t.Failed() {
		return // a processor would make no sense of what is there now
	}
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
	e.Expect(t, "a", Processed, 0)
}
