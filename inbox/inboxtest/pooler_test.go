package inboxtest_test

import (
	"testing"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox/inboxtest"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

// The contract holds behind a pooler in transaction mode, where a session is
// somebody else's after each transaction.
func TestContractThroughPgBouncer(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the contract takes a minute; it runs without a pooler as well")
	}
	pooler := testdb.StartPooler(t, testdb.Postgres(t), testdb.PoolerConfig{})
	for name, open := range map[string]func(string) (*bun.DB, error){"pgx": testdb.OpenPGX, "pgdriver": testdb.OpenPGDriver} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inboxtest.Run(t, func(t *testing.T) *bun.DB {
				db, err := open(pooler.Through(t, testdb.Postgres(t)))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = db.Close() })
				return db
			})
		})
	}
}
