package inboxtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/mediator"
)

var onceCases = []Case{
	{
		"a replay of an inline message runs nothing",
		"HandleOnce runs the function exactly when the receipt is fresh.",
		onceReplay,
	},
	{
		"an inline handler that fails leaves no receipt",
		"An error, a panic or Goexit rolls the receipt back, so that a redelivery runs it.",
		onceFails,
	},
	{
		"inline calls for one identity at once have one effect",
		"One runs; the others wait for its commit and report a duplicate, or run if it rolled back.",
		onceRace,
	},
	{
		"waiting for another inline call ends with the context",
		"A call that waits is bounded by its context.",
		onceWait,
	},
	{
		"inline and deferred handling of one identity exclude each other",
		"The receipts live in the inbox's table.",
		onceExcludes,
	},
	{
		"a bad receipt is a permanent error before any SQL",
		"A bad id or metadata is an EntryError, the transaction stays usable, nothing is stored.",
		onceBadReceipt,
	},
	{
		"a receipt in the caller's transaction commits or rolls back with it",
		"RecordReceipt and MarkProcessed belong to the caller's transaction.",
		onceParts,
	},
	{
		"an inline call in a foreign transaction is undone alone",
		"HandleOnceTx uses a savepoint; its error leaves the caller's transaction usable.",
		onceForeign,
	},
	{
		"an inline handler cannot end the transaction",
		"What would end the transaction is refused, and fails the call even if that is swallowed.",
		onceRefuses,
	},
	{
		"a mediator with Once in front handles a message once",
		"The middleware puts handlers inside HandleOnce.",
		onceMiddleware,
	},
}

func receipt(id string) inbox.Receipt {
	return inbox.Receipt{Source: "test", MessageID: id, Name: "inline"}
}

func (e *Env) once(ctx context.Context, id string) (bool, error) {
	return e.Repo.HandleOnce(ctx, receipt(id), func(ctx context.Context, _ bun.IDB) error { return e.Effect(ctx, id) })
}

func onceReplay(t *testing.T, e *Env) {
	for i, want := range []bool{true, false, false} {
		if fresh, err := e.once(t.Context(), "a"); fresh != want || err != nil {
			t.Fatalf("call %d: fresh %v, %v", i, fresh, err)
		}
	}
	for _, r := range []inbox.Receipt{{Source: "other", MessageID: "a", Name: "inline"}, {Source: "test", MessageID: "a", Name: "consumer 2"}, receipt("b")} {
		result, fresh, err := inbox.HandleOnceResult(t.Context(), e.Repo, r, func(context.Context, bun.IDB) (string, error) { return "done", nil })
		if result != "done" || !fresh || err != nil {
			t.Errorf("%+v: %q, %v, %v", r, result, fresh, err)
		}
	}
	result, fresh, err := inbox.HandleOnceResult(t.Context(), e.Repo, receipt("b"), func(context.Context, bun.IDB) (string, error) { return "again", nil })
	if result != "" || fresh || err != nil {
		t.Errorf("replay: %q, %v, %v", result, fresh, err)
	}
	stats, err := e.Repo.Stats(t.Context())
	if err != nil || stats.Processed != 4 || stats.Pending != 0 {
		t.Errorf("stats %+v, %v", stats, err)
	}
	if e.Effects(t)["a"] != 1 {
		t.Error("no effect")
	}
}

func onceFails(t *testing.T, e *Env) {
	boom := errors.New("boom")
	fail := func(end func() error) (bool, error) {
		return e.Repo.HandleOnce(t.Context(), receipt("a"), func(ctx context.Context, _ bun.IDB) error {
			if err := e.Effect(ctx, "a"); err != nil {
				return err
			}
			return end()
		})
	}
	if fresh, err := fail(func() error { return boom }); fresh || !errors.Is(err, boom) {
		t.Errorf("error: %v, %v", fresh, err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is lost")
			}
		}()
		_, _ = fail(func() error { panic("boom") })
	}()
	var group sync.WaitGroup
	group.Go(func() { _, _ = fail(func() error { runtime.Goexit(); return nil }) })
	group.Wait()
	swallowed, err := e.Repo.HandleOnce(t.Context(), receipt("a"), func(ctx context.Context, tx bun.IDB) error {
		_ = e.Effect(ctx, "a")
		_, _ = tx.ExecContext(ctx, "INSERT INTO nowhere VALUES (1)")
		if !e.Postgres() {
			return boom // SQLite keeps the transaction after a failed statement
		}
		return nil
	})
	if swallowed || err == nil {
		t.Errorf("a swallowed error: %v, %v", swallowed, err)
	}
	if n := len(e.Effects(t)); n != 0 {
		t.Fatalf("%d effects before the redelivery", n)
	}
	if fresh, err := e.once(t.Context(), "a"); !fresh || err != nil {
		t.Errorf("redelivery: %v, %v", fresh, err)
	}
	if e.Effects(t)["a"] != 1 {
		t.Error("no effect")
	}
}

func onceRace(t *testing.T, e *Env) {
	var ran, fresh, failed atomic.Int32
	for round := range 5 {
		id := fmt.Sprint("race", round)
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				for {
					ok, err := e.Repo.HandleOnce(t.Context(), receipt(id), func(ctx context.Context, _ bun.IDB) error {
						ran.Add(1)
						if err := e.Effect(ctx, id); err != nil {
							return err
						}
						if failed.CompareAndSwap(int32(round), int32(round+1)) {
							return errors.New("the first one fails")
						}
						return nil
					})
					if ok {
						fresh.Add(1)
					}
					if err == nil {
						return
					}
				}
			})
		}
		group.Wait()
	}
	if fresh.Load() != 5 || ran.Load() != 10 {
		t.Errorf("%d calls were fresh and %d ran, want 5 and 10", fresh.Load(), ran.Load())
	}
	if n := len(e.Effects(t)); n != 5 {
		t.Errorf("%d effects", n)
	}
}

func onceWait(t *testing.T, e *Env) {
	inside, release := make(chan struct{}), make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		_, err := e.Repo.HandleOnce(t.Context(), receipt("a"), func(ctx context.Context, _ bun.IDB) error {
			close(inside)
			<-release
			return e.Effect(ctx, "a")
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-inside
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if fresh, err := e.once(ctx, "a"); fresh || err == nil {
		t.Errorf("fresh %v, %v", fresh, err)
	}
	close(release)
	group.Wait()
	if fresh, err := e.once(t.Context(), "a"); fresh || err != nil {
		t.Errorf("after the commit: fresh %v, %v", fresh, err)
	}
}

func onceExcludes(t *testing.T, e *Env) {
	e.Accept(t, "deferred")
	r := inbox.Receipt{Source: "test", MessageID: "deferred", Name: "job"}
	fresh, err := e.Repo.HandleOnce(t.Context(), r, func(context.Context, bun.IDB) error { return errors.New("must not run") })
	if fresh || err != nil {
		t.Errorf("inline after deferred: %v, %v", fresh, err)
	}
	r.MessageID = "inline"
	if fresh, err := e.Repo.IsFresh(t.Context(), r.Identity()); !fresh || err != nil {
		t.Errorf("fresh before: %v, %v", fresh, err)
	}
	if fresh, err := e.Repo.HandleOnce(t.Context(), r, func(ctx context.Context, _ bun.IDB) error { return e.Effect(ctx, "inline") }); !fresh || err != nil {
		t.Errorf("inline: %v, %v", fresh, err)
	}
	if fresh, err := e.Repo.IsFresh(t.Context(), r.Identity()); fresh || err != nil {
		t.Errorf("fresh after: %v, %v", fresh, err)
	}
	outcomes, err := e.Repo.Accept(t.Context(), e.Entries("inline"))
	if err != nil || outcomes[0].Kind != inbox.Duplicate {
		t.Errorf("deferred after inline: %v, %v", outcomes, err)
	}
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
	e.Expect(t, "deferred", Processed, 0)
	if e.Effects(t)["inline"] != 1 {
		t.Error("the inline message has no effect of its own")
	}
}

func onceBadReceipt(t *testing.T, e *Env) {
	bad := map[string]inbox.Receipt{
		"empty id":         {MessageID: "", Name: "n"},
		"NUL":              {MessageID: "a\x00b", Name: "n"},
		"C0":               {MessageID: "a\x1fb", Name: "n"},
		"DEL":              {MessageID: "a\x7fb", Name: "n"},
		"257 bytes":        {MessageID: strings.Repeat("x", 257), Name: "n"},
		"invalid UTF-8":    {MessageID: "a", Source: "\xff", Name: "n"},
		"empty name":       {MessageID: "a"},
		"a channel":        {MessageID: "a", Name: "n", Metadata: make(chan int)},
		"much metadata":    {MessageID: "a", Name: "n", Metadata: strings.Repeat("x", 64<<10)},
		"much map":         {MessageID: "a", Name: "n", Metadata: map[string]string{"k": strings.Repeat("x", 64<<10)}},
		"metadata of \xff": {MessageID: "a", Name: "n", Metadata: map[string]string{"k": "\xff"}},
	}
	err := e.DB.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
		for name, r := range bad {
			run := func(context.Context, bun.IDB) error { t.Errorf("%s: it ran", name); return nil }
			_, once := e.Repo.HandleOnceTx(ctx, tx, r, run)
			_, record := e.Repo.RecordReceipt(ctx, tx, r)
			for _, err := range []error{once, record, e.Repo.MarkProcessed(ctx, tx, r)} {
				var entry *inbox.EntryError
				if !errors.As(err, &entry) {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO effects (job) VALUES ('usable')`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tx := range []bun.IConn{nil, e.DB, e.DB.DB, (*sql.Tx)(nil), bun.Tx{}} {
		if _, err := e.Repo.RecordReceipt(t.Context(), tx, receipt("a")); !errors.Is(err, inbox.ErrNoTransaction) {
			t.Errorf("%T: %v", tx, err)
		}
	}
	if n := e.Count(t, `SELECT count(*) FROM inbox_messages`); n != 0 {
		t.Errorf("%d receipts", n)
	}
}

func onceParts(t *testing.T, e *Env) {
	work := func(commit bool) (fresh bool) {
		err := e.DB.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) (err error) {
			if fresh, err = e.Repo.RecordReceipt(ctx, tx, receipt("a")); err != nil || !fresh {
				return err
			}
			if _, err := tx.ExecContext(ctx, `INSERT INTO effects (job) VALUES ('a')`); err != nil {
				return err
			}
			stamped := receipt("a")
			stamped.Metadata = map[string]any{"answer": 42}
			if err := e.Repo.MarkProcessed(ctx, tx, stamped); err != nil {
				return err
			}
			if !commit {
				return errors.New("roll back")
			}
			return nil
		})
		if (err == nil) != commit && fresh {
			t.Fatal(err)
		}
		return fresh
	}
	if !work(false) || !work(true) || work(true) {
		t.Error("fresh must be true, true, false")
	}
	row := e.Row(t, "a")
	if row.Status != Processed || row.State != -1 || row.Metadata != `{"answer":42}` {
		t.Errorf("%+v", row)
	}
	err := e.DB.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
		if fresh, err := e.Repo.RecordReceipt(ctx, tx, receipt("never stamped")); !fresh || err != nil {
			t.Errorf("%v, %v", fresh, err)
		}
		if err := e.Repo.MarkProcessed(ctx, tx, receipt("unknown")); !errors.Is(err, inbox.ErrNoReceipt) {
			t.Errorf("a receipt that is not there: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if row := e.Row(t, "never stamped"); row.Status != Processed {
		t.Errorf("%+v", row)
	}
}

func onceForeign(t *testing.T, e *Env) {
	tx, err := e.DB.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), `INSERT INTO effects (job) VALUES ('outer')`); err != nil {
		t.Fatal(err)
	}
	boom := errors.New("boom")
	_, err = e.Repo.HandleOnceTx(t.Context(), tx, receipt("a"), func(ctx context.Context, _ bun.IDB) error {
		return errors.Join(boom, e.Effect(ctx, "a"))
	})
	if !errors.Is(err, boom) {
		t.Errorf("%v", err)
	}
	for i, want := range []bool{true, false} {
		fresh, err := e.Repo.HandleOnceTx(t.Context(), tx, receipt("a"), func(ctx context.Context, inner bun.IDB) error {
			if inbox.DB(ctx, e.DB) != inner {
				t.Error("DB is another transaction")
			}
			return inner.RunInTx(ctx, nil, func(ctx context.Context, nested bun.Tx) error {
				_, err := nested.ExecContext(ctx, `INSERT INTO effects (job) VALUES ('a')`)
				return err
			})
		})
		if fresh != want || err != nil {
			t.Errorf("call %d: %v, %v", i, fresh, err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if effects := e.Effects(t); effects["outer"] != 1 || effects["a"] != 1 {
		t.Errorf("%v", effects)
	}
}

func onceRefuses(t *testing.T, e *Env) {
	for _, text := range []string{"COMMIT", "rollback", "SELECT 1; COMMIT", "/* */ END"} {
		fresh, err := e.Repo.HandleOnce(t.Context(), receipt("a"), func(ctx context.Context, tx bun.IDB) error {
			if err := e.Effect(ctx, "a"); err != nil {
				return err
			}
			_, _ = tx.ExecContext(ctx, text)
			return nil
		})
		if fresh || err == nil {
			t.Errorf("%s: %v, %v", text, fresh, err)
		}
	}
	if n := len(e.Effects(t)); n != 0 {
		t.Errorf("%d effects", n)
	}
}

func onceMiddleware(t *testing.T, e *Env) {
	requests := mediator.NewRequestMediator(e.Requests, e.Repo.Once(func(_ context.Context, message any) (inbox.Receipt, bool) {
		job, ok := message.(Job)
		return receipt(job.ID), ok
	}))
	e.On("fails once", func(ctx context.Context, job Job) error {
		if err := e.Effect(ctx, job.ID); err != nil || e.Calls(job.ID) > 1 {
			return err
		}
		return errors.New("not yet")
	})
	for _, id := range []string{"a", "a", "fails once", "fails once", "fails once"} {
		_, err := requests.Send(t.Context(), Job{ID: id})
		if (err != nil) != (id != "a" && e.Calls(id) == 1 && len(e.Effects(t)) == 1) {
			t.Errorf("%s: %v", id, err)
		}
	}
	if e.Calls("a") != 1 || e.Calls("fails once") != 2 {
		t.Errorf("%d and %d calls, want 1 and 2", e.Calls("a"), e.Calls("fails once"))
	}
	if n := len(e.Effects(t)); n != 2 {
		t.Errorf("%d effects", n)
	}
}
