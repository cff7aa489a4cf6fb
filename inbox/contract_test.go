package inbox_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox/inboxtest"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

func TestContract(t *testing.T) {
	t.Run("PostgreSQL through pgx", func(t *testing.T) {
		t.Parallel()
		inboxtest.Run(t, func(t *testing.T) *bun.DB { return testdb.PGX(t) })
	})
	t.Run("PostgreSQL through pgx, prepared", func(t *testing.T) {
		t.Parallel()
		options := inboxtest.Options{DriverArgs: []any{pgx.QueryExecModeCacheStatement}}
		inboxtest.RunWith(t, options, func(t *testing.T) *bun.DB { return testdb.PGX(t) })
	})
	t.Run("PostgreSQL through pgdriver", func(t *testing.T) {
		t.Parallel()
		inboxtest.Run(t, func(t *testing.T) *bun.DB { return testdb.PGDriver(t) })
	})
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		inboxtest.Run(t, func(t *testing.T) *bun.DB { return testdb.SQLite(t) })
	})
}
