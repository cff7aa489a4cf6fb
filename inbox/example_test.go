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

// CreditAccount is a message: a plain Go value.
type CreditAccount struct {
	Account string `json:"account"`
	Cents   int64  `json:"cents"`
}

func Example() {
	ctx := context.Background()

	// A database in memory has one connection. For a file or PostgreSQL see "Install".
	pool, err := sql.Open("sqlite", "file::memory:")
	check(err)
	defer pool.Close()
	pool.SetMaxOpenConns(1)
	db := bun.NewDB(pool, sqlitedialect.New())
	_, err = db.ExecContext(ctx, "CREATE TABLE credits (account TEXT, cents INTEGER)")
	check(err)

	// 1. The name under which the message is stored. Choose it once; the Go type may be renamed later.
	names := inbox.NewNameMap()
	inbox.Register[CreditAccount](names, "credit_account")

	// 2. The handler. It uses the inbox's transaction when there is one, and db when it is called directly.
	requests := mediator.NewRequestMap()
	mediator.BindCommand(requests, func(ctx context.Context, c CreditAccount) error {
		_, err := inbox.DB(ctx, db).NewRaw("INSERT INTO credits VALUES (?, ?)", c.Account, c.Cents).Exec(ctx)
		return err
	})

	// 3. The tables.
	repo, err := inbox.NewRepository(db, names, inbox.Config{})
	check(err)
	check(repo.Migrate(ctx))

	// 4. Accept: in an HTTP handler or a broker subscriber. Once it returns, answer 202 or ack; after an
	// error answer 503 or nack. Here the sender repeats itself.
	entry := inbox.Entry{Source: "psp-x", MessageID: "pay-1", Message: CreditAccount{Account: "alice", Cents: 500}}
	for range 2 {
		outcomes, err := repo.Accept(ctx, []inbox.Entry{entry})
		check(err)
		fmt.Println(outcomes[0].Kind)
	}

	// 5. Process: usually Run, which blocks until ctx ends. Drain returns when nothing is due.
	processor, err := inbox.NewProcessor(repo, inbox.ProcessorConfig{Requests: mediator.NewRequestMediator(requests)})
	check(err)
	_, err = processor.Drain(ctx)
	check(err)

	var cents int64
	check(db.NewRaw("SELECT sum(cents) FROM credits").Scan(ctx, &cents))
	fmt.Println(cents)
	// Output:
	// stored
	// duplicate
	// 500
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
