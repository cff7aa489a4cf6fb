package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/mediator"
)

// exampleDatabase is an empty SQLite database in memory. The pool is limited to
// one connection: each further one would be a database of its own.
func exampleDatabase() *bun.DB {
	sqldb, err := sql.Open("sqlite", "file::memory:")
	if err != nil {
		log.Fatal(err)
	}
	sqldb.SetMaxOpenConns(1)
	return bun.NewDB(sqldb, sqlitedialect.New())
}

// exampleInbox is a migrated inbox on db.
func exampleInbox(ctx context.Context, db *bun.DB, names *inbox.NameMap) *inbox.Repository {
	repo, err := inbox.NewRepository(db, names, inbox.Config{})
	if err != nil {
		log.Fatal(err)
	}
	if err := repo.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	return repo
}

// Add belongs to the caller's transaction: what else it writes is committed
// together with the messages, or not at all.
func ExampleRepository_Add() {
	ctx := context.Background()
	db := exampleDatabase()
	defer db.Close()
	names := inbox.NewNameMap()
	inbox.Register[CreditAccount](names, "credit_account")
	repo := exampleInbox(ctx, db, names)
	if _, err := db.Exec(`CREATE TABLE uploads (file TEXT PRIMARY KEY, messages INTEGER NOT NULL)`); err != nil {
		log.Fatal(err)
	}

	entries := []inbox.Entry{
		{MessageID: "line 1", Source: "may.csv", Message: CreditAccount{Account: "alice", Cents: 500}},
		{MessageID: "line 2", Source: "may.csv", Message: CreditAccount{Account: "bob", Cents: 700}},
	}
	var outcomes []inbox.Outcome
	err := db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.NewRaw(`INSERT INTO uploads VALUES (?, ?)`, "may.csv", len(entries)).Exec(ctx); err != nil {
			return err
		}
		var err error
		outcomes, err = repo.Add(ctx, tx, entries)
		return err
	})
	if err != nil {
		log.Fatal(err) // nothing is stored: do not answer yet
	}
	repo.Committed(ctx, outcomes) // wakes a processor in this process
	for _, o := range outcomes {
		fmt.Println(o.Identity.MessageID, o.Kind)
	}

	// A bad entry is refused before any SQL is sent.
	_, err = repo.Accept(ctx, []inbox.Entry{entries[0], {Source: "may.csv", Message: entries[1].Message}})
	var bad *inbox.EntryError
	if errors.As(err, &bad) {
		fmt.Println(bad.Index, bad.Field)
	}
	fmt.Println(err)
	// Output:
	// line 1 stored
	// line 2 stored
	// 1 message id
	// inbox: entry 1: message id: empty
}

// A type that was renamed keeps the rows of its former names.
func ExampleRegisterWith() {
	type Deposit struct {
		Account string `json:"account"`
		Cents   int64  `json:"cents"`
	}
	names := inbox.NewNameMap()
	inbox.RegisterWith[Deposit](names, inbox.Registration{
		Name:        "deposit",
		FormerNames: []string{"credit_account"},
	})

	stored, _ := names.NameOf(Deposit{})
	fmt.Println(stored)
	old, err := names.Decode("credit_account", []byte(`{"account":"alice","cents":500}`))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%+v\n", old)
	// Output:
	// deposit
	// {Account:alice Cents:500}
}

// GetMany and Process are the low-level pair for a loop of one's own.
func ExampleRepository_GetMany() {
	ctx := context.Background()
	db := exampleDatabase()
	defer db.Close()
	names := inbox.NewNameMap()
	inbox.Register[CreditAccount](names, "credit_account")
	repo := exampleInbox(ctx, db, names)

	requests := mediator.NewRequestMap()
	mediator.BindCommand(requests, func(ctx context.Context, c CreditAccount) error {
		message, _ := inbox.FromContext(ctx)
		fmt.Println(message.MessageID, c.Account, c.Cents)
		return nil
	})
	processor, err := inbox.NewProcessor(repo, inbox.ProcessorConfig{Requests: mediator.NewRequestMediator(requests)})
	if err != nil {
		log.Fatal(err)
	}
	_, err = repo.Accept(ctx, []inbox.Entry{
		{MessageID: "1", Message: CreditAccount{Account: "alice", Cents: 500}},
		{MessageID: "2", Message: inbox.Raw{Name: "credit_account", Payload: []byte(`{"account":"bob","cents":700}`)}},
	})
	if err != nil {
		log.Fatal(err)
	}

	err = db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		messages, err := repo.GetMany(ctx, tx, 10)
		if err != nil {
			return err
		}
		for _, message := range messages {
			if err := processor.Process(ctx, tx, message); err != nil {
				return err // rolls back: every message is claimable again
			}
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	stats, err := repo.Stats(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(stats.Processed, "processed,", stats.Pending, "pending")
	// Output:
	// 1 alice 500
	// 2 bob 700
	// 2 processed, 0 pending
}

// A handler that does not use bun: SQL has the methods that code by hand and sqlc
// ask for. Called from outside the inbox, the same handler writes to the pool.
func ExampleSQL() {
	ctx := context.Background()
	db := exampleDatabase()
	defer db.Close()
	if _, err := db.Exec(`CREATE TABLE credits (account TEXT, cents INTEGER)`); err != nil {
		log.Fatal(err)
	}
	names := inbox.NewNameMap()
	inbox.Register[CreditAccount](names, "credit_account")
	repo := exampleInbox(ctx, db, names)

	requests := mediator.NewRequestMap()
	mediator.BindCommand(requests, func(ctx context.Context, c CreditAccount) error {
		_, err := inbox.SQL(ctx, db.DB).ExecContext(ctx, `INSERT INTO credits VALUES (?, ?)`, c.Account, c.Cents)
		return err
	})
	processor, err := inbox.NewProcessor(repo, inbox.ProcessorConfig{Requests: mediator.NewRequestMediator(requests)})
	if err != nil {
		log.Fatal(err)
	}
	entry := inbox.Entry{Source: "psp-x", MessageID: "pay-1", Message: CreditAccount{Account: "alice", Cents: 500}}
	for range 2 {
		if _, err := repo.Accept(ctx, []inbox.Entry{entry}); err != nil {
			log.Fatal(err)
		}
		if _, err := processor.Drain(ctx); err != nil {
			log.Fatal(err)
		}
	}
	var cents int64
	if err := db.DB.QueryRowContext(ctx, `SELECT sum(cents) FROM credits`).Scan(&cents); err != nil {
		log.Fatal(err)
	}
	fmt.Println(cents)
	// Output: 500
}
