package inbox_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

// With pgx's option the statement that stores messages is prepared once, and
// does what it does without.
func TestDriverArgsPrepareTheAccept(t *testing.T) {
	t.Parallel()
	n := openNode(t, target{"pgx", testdb.Postgres(t)}, false)
	n.db.SetMaxOpenConns(1)
	repo, err := inbox.NewRepository(n.db, n.names, inbox.Config{DriverArgs: []any{pgx.QueryExecModeCacheStatement}})
	if err != nil {
		t.Fatal(err)
	}
	n.repo = repo
	kinds := func(ids ...string) (all []string) {
		t.Helper()
		entries := taskEntries(ids...)
		for i := range entries {
			entries[i].OrderingKey = `a "key" with \ and ,{}`
			entries[i].Metadata = map[string]string{"quote": `"\'`}
		}
		outcomes, err := repo.Accept(t.Context(), entries)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range outcomes {
			all = append(all, o.Kind.String())
		}
		return all
	}
	for range 8 { // PostgreSQL may change to a generic plan after five
		id := inbox.NewMessageID()
		got := append(kinds(id), kinds(id)...)
		got = append(got, kinds(id, id+"b", id+"b", id+"c")...)
		if diff := cmp.Diff([]string{"stored", "duplicate", "duplicate", "stored", "duplicate", "stored"}, got); diff != "" {
			t.Error(diff)
		}
	}
	if got := n.count(t, `SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%INSERT INTO "inbox_messages"%'`); got < 2 || got > 4 {
		t.Errorf("%d statements are prepared, want one per form", got)
	}
	n.drainAll(t)
	n.expectOnce(t, 24)
}
