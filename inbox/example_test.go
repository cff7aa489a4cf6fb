package inbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	_ "modernc.org/sqlite"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/mediator"
)

// CreditAccount is a command of the application.
type CreditAccount struct {
	Account string `json:"account"`
	Cents   int64  `json:"cents"`
}

func Example() {
	ctx := context.Background()
	sqldb, err := sql.Open("sqlite", "file::memory:")
	if err != nil {
		log.Fatal(err)
	}
	sqldb.SetMaxOpenConns(1)
	db := bun.NewDB(sqldb, sqlitedialect.New())
	defer db.Close()
	if _, err := db.Exec(`CREATE TABLE accounts (account TEXT PRIMARY KEY, cents INTEGER NOT NULL)`); err != nil {
		log.Fatal(err)
	}

	// The name is what is stored; the Go type may be renamed.
	names := inbox.NewNameMap()
	inbox.Register[CreditAccount](names, "credit_account")

	// Handlers are registered once, in the mediator. inbox.DB is the inbox's
	// transaction when the inbox calls, and db when anybody else does.
	requests := mediator.NewRequestMap()
	mediator.BindCommand(requests, func(ctx context.Context, c CreditAccount) error {
		_, err := inbox.DB(ctx, db).ExecContext(ctx, `
			INSERT INTO accounts (account, cents) VALUES (?, ?)
			ON CONFLICT (account) DO UPDATE SET cents = accounts.cents + excluded.cents`, c.Account, c.Cents)
		return err
	})

	repo, err := inbox.NewRepository(db, names, inbox.Config{})
	if err != nil {
		log.Fatal(err)
	}
	if err := repo.Migrate(ctx); err != nil {
		log.Fatal(err)
	}

	// Presentation code: accept and commit, then answer. The sender repeats itself.
	for range 2 {
		outcomes, err := repo.Accept(ctx, []inbox.Entry{{
			MessageID: "E1234",
			Source:    "psp",
			Message:   CreditAccount{Account: "alice", Cents: 500},
		}})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(outcomes[0].Kind)
	}

	// The worker: Run in a service, Drain here.
	processor, err := inbox.NewProcessor(repo, inbox.ProcessorConfig{
		Requests: mediator.NewRequestMediator(requests),
	})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := processor.Drain(ctx); err != nil {
		log.Fatal(err)
	}

	var cents int64
	if err := db.NewSelect().Table("accounts").Column("cents").Where("account = ?", "alice").Scan(ctx, &cents); err != nil {
		log.Fatal(err)
	}
	fmt.Println(cents)
	// Output:
	// stored
	// duplicate
	// 500
}
