package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/mediator"
)

func TestSmoke(t *testing.T) {
	for name, open := range map[string]func(testing.TB) *bun.DB{"pgx": testdb.PGX, "pgdriver": testdb.PGDriver, "sqlite": testdb.SQLite} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			db := open(t)
			names := inbox.NewNameMap()
			inbox.Register[CreditAccount](names, "credit_account")
			requests := mediator.NewRequestMap()
			mediator.BindCommand(requests, func(ctx context.Context, c CreditAccount) error {
				if _, err := inbox.DB(ctx, db).ExecContext(ctx, `INSERT INTO effects (account) VALUES (?)`, c.Account); err != nil {
					return err
				}
				if c.Cents == 13 {
					return errors.New("bad luck; number")
				}
				return inbox.DB(ctx, db).RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
					var n int
					if err := tx.NewSelect().TableExpr("effects").ColumnExpr("count(*)").Scan(ctx, &n); err != nil {
						return err
					}
					_, err := tx.ExecContext(ctx, `INSERT INTO effects (account) VALUES (?)`, fmt.Sprint("nested", n))
					return err
				})
			})
			if _, err := db.Exec(`CREATE TABLE effects (account TEXT)`); err != nil {
				t.Fatal(err)
			}
			repo, err := inbox.NewRepository(db, names, inbox.Config{})
			if err != nil {
				t.Fatal(err)
			}
			if err := repo.Migrate(ctx); err != nil {
				t.Fatal(err)
			}
			if err := repo.Migrate(ctx); err != nil {
				t.Fatal(err)
			}
			var entries []inbox.Entry
			for i := range 50 {
				entries = append(entries, inbox.Entry{MessageID: fmt.Sprint(i), Message: CreditAccount{Account: fmt.Sprint(i), Cents: int64(i)}})
			}
			entries = append(entries, entries[3])
			out, err := repo.Accept(ctx, entries)
			if err != nil {
				t.Fatal(err)
			}
			t.Log(out[0], out[50])
			entries[3].Message = CreditAccount{Account: "x"}
			out, err = repo.Accept(ctx, entries[2:5])
			t.Log(out, err)
			proc, err := inbox.NewProcessor(repo, inbox.ProcessorConfig{Requests: mediator.NewRequestMediator(requests)})
			if err != nil {
				t.Fatal(err)
			}
			n, err := proc.Drain(ctx)
			t.Log(n, err)
			var count int
			if err := db.NewSelect().TableExpr("effects").ColumnExpr("count(*)").Scan(ctx, &count); err != nil {
				t.Fatal(err)
			}
			s, err := repo.Stats(ctx)
			t.Logf("%d %+v %v", count, s, err)
		})
	}
}
