package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

func groupRepository(t *testing.T, db *bun.DB, names *inbox.NameMap) *inbox.Repository {
	t.Helper()
	repo, err := inbox.NewRepository(db, names, inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := repo.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return repo
}

func groupNames() *inbox.NameMap {
	names := inbox.NewNameMap()
	inbox.Register[CreditAccount](names, "credit_account")
	return names
}

func creditEntry(id string) []inbox.Entry {
	return []inbox.Entry{{MessageID: id, Message: CreditAccount{Account: id}}}
}

// counter counts the statements that store messages.
type counter struct{ n atomic.Int64 }

func (c *counter) BeforeQuery(ctx context.Context, _ *bun.QueryEvent) context.Context { return ctx }
func (c *counter) AfterQuery(_ context.Context, event *bun.QueryEvent) {
	if strings.Contains(event.Query, `INSERT INTO "inbox_messages"`) {
		c.n.Add(1)
	}
}

func TestConcurrentAcceptsShareAStatement(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(testing.TB) *bun.DB{"PostgreSQL": testdb.PGX, "SQLite": testdb.SQLite} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t)
			var statements counter
			hooked := db.WithQueryHook(&statements)
			repo := groupRepository(t, hooked, groupNames())
			const callers, calls = 32, 20
			var stored, duplicates atomic.Int64
			var group sync.WaitGroup
			for caller := range callers {
				group.Go(func() {
					for i := range calls {
						// Every id comes from two callers.
						outcomes, err := repo.Accept(t.Context(), creditEntry(fmt.Sprint(caller/2, "-", i)))
						if err != nil {
							t.Error(err)
							return
						}
						switch outcomes[0].Kind {
						case inbox.Stored:
							stored.Add(1)
						case inbox.Duplicate:
							duplicates.Add(1)
						}
						// Durable for everybody as soon as the call returns.
						if fresh, err := repo.IsFresh(t.Context(), outcomes[0].Identity); fresh || err != nil {
							t.Errorf("not visible after Accept: %v", err)
						}
					}
				})
			}
			group.Wait()
			if want := int64(callers * calls / 2); stored.Load() != want || duplicates.Load() != want {
				t.Errorf("stored %d, duplicates %d, want %d each", stored.Load(), duplicates.Load(), want)
			}
			if n := statements.n.Load(); n >= callers*calls/2 {
				t.Errorf("%d statements for %d calls: nothing was shared", n, callers*calls)
			} else {
				t.Logf("%d statements for %d calls", n, callers*calls)
			}
		})
	}
}

func TestAnAcceptThatWaitsForALockHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	db := testdb.PGX(t)
	repo := groupRepository(t, db, groupNames())
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := repo.Add(t.Context(), tx, creditEntry("held")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	waited := make(chan inbox.OutcomeKind, 8)
	wait := func() {
		outcomes, err := repo.Accept(t.Context(), creditEntry("held"))
		if err != nil {
			t.Error(err)
			waited <- 0
			return
		}
		waited <- outcomes[0].Kind
	}
	for n := 1; n <= 4; n++ {
		go wait()
		for waiting := 0; waiting < n; { // one after the other, each as a group by itself
			err := db.NewRaw(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(ctx, &waiting)
			if err != nil {
				t.Fatalf("%d calls wait for the lock: %v", waiting, err)
			}
		}
	}
	accept := func(id string) {
		if _, err := repo.Accept(ctx, creditEntry(id)); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	for i := range 50 {
		accept(fmt.Sprint("alone", i))
	}
	var group sync.WaitGroup
	for i := range 200 { // in groups, some with one that has to wait
		group.Go(func() { accept(fmt.Sprint("together", i)) })
		if i%50 == 25 {
			go wait()
		}
	}
	group.Wait()
	select {
	case kind := <-waited:
		t.Errorf("%v was reported while the other transaction was open", kind)
	default:
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	for range cap(waited) {
		if kind := <-waited; kind != inbox.Duplicate {
			t.Errorf("%v after the other transaction committed", kind)
		}
	}
}

func TestACancelledAcceptTouchesNoOtherInItsGroup(t *testing.T) {
	t.Parallel()
	db := testdb.PGX(t)
	repo := groupRepository(t, db, groupNames())
	var group sync.WaitGroup
	for caller := range 16 {
		group.Go(func() {
			for i := range 30 {
				ctx, cancel := context.WithCancel(t.Context())
				if caller%2 == 0 {
					cancel() // before, or in the middle of, a group
				}
				id := fmt.Sprint(caller, "-", i)
				_, err := repo.Accept(ctx, creditEntry(id))
				cancel()
				if caller%2 == 0 {
					if err != nil && !errors.Is(err, context.Canceled) {
						t.Errorf("cancelled: %v", err)
					}
					continue
				}
				if err != nil {
					t.Errorf("not cancelled: %v", err)
				}
			}
		})
	}
	group.Wait()
	var n int
	if err := db.NewRaw(`SELECT count(*) FROM inbox_messages WHERE split_part(message_id, '-', 1)::int % 2 = 1`).Scan(t.Context(), &n); err != nil {
		t.Fatal(err)
	}
	if n != 8*30 {
		t.Errorf("%d of %d messages are stored", n, 8*30)
	}
}

func TestABadCallFailsAloneInItsGroup(t *testing.T) {
	t.Parallel()
	db := testdb.PGX(t)
	repo := groupRepository(t, db, groupNames())
	if _, err := db.Exec(`ALTER TABLE inbox_messages ADD CHECK (message_id NOT LIKE 'bad%')`); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for caller := range 16 {
		group.Go(func() {
			for i := range 20 {
				id := fmt.Sprint("good", caller, "-", i)
				if caller == 7 {
					id = fmt.Sprint("bad", i)
				}
				if _, err := repo.Accept(t.Context(), creditEntry(id)); (err != nil) != (caller == 7) {
					t.Errorf("%s: %v", id, err)
				}
			}
		})
	}
	group.Wait()
	var n int
	if err := db.NewRaw(`SELECT count(*) FROM inbox_messages`).Scan(t.Context(), &n); err != nil {
		t.Fatal(err)
	}
	if n != 15*20 {
		t.Errorf("%d messages are stored, want %d", n, 15*20)
	}
}
