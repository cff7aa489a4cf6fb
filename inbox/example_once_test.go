package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"

	"github.com/letterbox-go/letterbox/inbox"
)

// exampleRepository returns a migrated inbox in memory, and a table of credits.
func exampleRepository(ctx context.Context) (*bun.DB, *inbox.Repository) {
	pool, err := sql.Open("sqlite", "file::memory:")
	check(err)
	pool.SetMaxOpenConns(1)
	db := bun.NewDB(pool, sqlitedialect.New())
	_, err = db.ExecContext(ctx, "CREATE TABLE credits (account TEXT, cents INTEGER)")
	check(err)
	repo, err := inbox.NewRepository(db, inbox.NewNameMap(), inbox.Config{})
	check(err)
	check(repo.Migrate(ctx))
	return db, repo
}

// A broker redelivers a message whose first delivery failed, and then once more.
func ExampleRepository_HandleOnce() {
	ctx := context.Background()
	db, repo := exampleRepository(ctx)
	defer db.Close()

	deliver := func(attempt int) {
		fresh, err := repo.HandleOnce(ctx, inbox.Receipt{Source: "orders", MessageID: "42", Name: "billing"},
			func(ctx context.Context, tx bun.IDB) error {
				if _, err := tx.NewRaw("INSERT INTO credits VALUES (?, ?)", "alice", 500).Exec(ctx); err != nil {
					return err
				}
				if attempt == 1 {
					return errors.New("out of luck") // undoes the row and the receipt
				}
				return nil
			})
		fmt.Println(fresh, err)
	}
	deliver(1)
	deliver(2)
	deliver(3)

	var rows int
	check(db.NewRaw("SELECT count(*) FROM credits").Scan(ctx, &rows))
	fmt.Println(rows)
	// Output:
	// false inbox: handle once: out of luck
	// true <nil>
	// false <nil>
	// 1
}

// The caller owns the transaction and does the work exactly when the receipt is fresh.
func ExampleRepository_RecordReceipt() {
	ctx := context.Background()
	db, repo := exampleRepository(ctx)
	defer db.Close()

	for range 2 {
		err := db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
			receipt := inbox.Receipt{Source: "orders", MessageID: "42", Name: "billing"}
			fresh, err := repo.RecordReceipt(ctx, tx, receipt)
			fmt.Println(fresh)
			if err != nil || !fresh {
				return err
			}
			if _, err := tx.NewRaw("INSERT INTO credits VALUES (?, ?)", "alice", 500).Exec(ctx); err != nil {
				return err
			}
			receipt.Metadata = map[string]string{"credited": "500"}
			return repo.MarkProcessed(ctx, tx, receipt) // optional
		})
		check(err)
	}
	// Output:
	// true
	// false
}
