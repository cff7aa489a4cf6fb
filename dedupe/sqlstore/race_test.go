package sqlstore_test

import (
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/dedupe"
	"github.com/letterbox-go/letterbox/dedupe/sqlstore"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

// The other's row is invisible when Reserve begins, and there when it ends.
func TestAKeyThatIsTakenWhileReserveRunsIsHeld(t *testing.T) {
	t.Parallel()
	db := testdb.PGX(t)
	store := migrated(t, db, sqlstore.Config{})
	other, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Rollback()
	if _, err := other.Exec(`INSERT INTO inbox_dedupe VALUES ('s', 'k', 'other', FALSE, now() + interval '1 hour')`); err != nil {
		t.Fatal(err)
	}
	type result struct {
		found dedupe.Reservation
		err   error
	}
	results := make(chan result, 1)
	go func() {
		found, err := store.Reserve(t.Context(), dedupe.Key{Scope: "s", ID: "k"}, "mine", time.Minute)
		results <- result{found, err}
	}()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		var waiting int
		err := db.NewRaw(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(t.Context(), &waiting)
		if err != nil {
			t.Fatal(err)
		}
		if waiting == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("Reserve does not wait for the other's row")
		}
	}
	if err := other.Commit(); err != nil {
		t.Fatal(err)
	}
	if got := <-results; got.err != nil || got.found.State != dedupe.Held {
		t.Errorf("got %v, %v; want held", got.found.State, got.err)
	}
}
