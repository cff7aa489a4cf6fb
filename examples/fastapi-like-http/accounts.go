package main

import (
	"context"
	"database/sql"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/letterbox-go/letterbox/inbox"
)

// Account is a customer's account. Its key is the Pix key (chave).
type Account struct {
	Chave   string `json:"chave"`
	Name    string `json:"name"`
	Balance Cents  `json:"balance" doc:"Reais, a decimal string"`
	Credits int64  `json:"credits" doc:"How many Pix were credited"`
}

var errUnknownAccount = errors.New("no account has this chave")

// tables reads the same on PostgreSQL and SQLite. The primary key of pix_credits
// would make a second credit of one Pix fail; the inbox sees to it that none is tried.
var tables = []string{
	`CREATE TABLE IF NOT EXISTS accounts (
		chave TEXT PRIMARY KEY,
		name TEXT NOT NULL,
		balance_cents BIGINT NOT NULL DEFAULT 0 CHECK (balance_cents >= 0)
	)`,
	`CREATE TABLE IF NOT EXISTS pix_credits (
		end_to_end_id TEXT PRIMARY KEY,
		chave TEXT NOT NULL REFERENCES accounts (chave),
		cents BIGINT NOT NULL,
		txid TEXT NOT NULL,
		horario TIMESTAMPTZ NOT NULL
	)`,
	`CREATE INDEX IF NOT EXISTS pix_credits_chave ON pix_credits (chave)`,
}

//go:embed data/accounts.jsonl
var accountsFile string

// createAccounts makes the business tables and the accounts of the example,
// where they are missing.
func createAccounts(ctx context.Context, db *bun.DB) error {
	return db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if db.Dialect().Name() == dialect.PG {
			// IF NOT EXISTS fails when two processes create at the same moment.
			if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock(hashtext('letterbox example'))`); err != nil {
				return fmt.Errorf("lock: %w", err)
			}
		}
		for _, statement := range tables {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("create tables: %w", err)
			}
		}
		accounts, err := readAccounts()
		if err != nil {
			return err
		}
		for _, a := range accounts {
			if _, err := tx.ExecContext(ctx, `INSERT INTO accounts (chave, name) VALUES (?, ?) ON CONFLICT DO NOTHING`, a.Chave, a.Name); err != nil {
				return fmt.Errorf("create accounts: %w", err)
			}
		}
		return nil
	})
}

// readAccounts returns the accounts of the data file.
func readAccounts() ([]Account, error) {
	var accounts []Account
	for line := range strings.Lines(accountsFile) {
		var a Account
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			return nil, fmt.Errorf("accounts file: %w", err)
		}
		accounts = append(accounts, a)
	}
	return accounts, nil
}

// creditPix is the handler of CreditPix. Inside the inbox, inbox.DB is the
// transaction that also marks the notification as processed: both commit, or
// neither does.
//
// An unknown account is an ordinary error: perhaps it is opened in a minute.
// After the last attempt the notification is dead, and waits for an operator.
func creditPix(db *bun.DB) func(context.Context, CreditPix) error {
	return func(ctx context.Context, pix CreditPix) error {
		tx := inbox.DB(ctx, db)
		result, err := tx.ExecContext(ctx, `UPDATE accounts SET balance_cents = balance_cents + ? WHERE chave = ?`, int64(pix.Valor), pix.Chave)
		if err != nil {
			return fmt.Errorf("credit account: %w", err)
		}
		if n, err := result.RowsAffected(); err != nil {
			return fmt.Errorf("credit account: %w", err)
		} else if n == 0 {
			return errUnknownAccount
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO pix_credits (end_to_end_id, chave, cents, txid, horario) VALUES (?, ?, ?, ?, ?)`,
			pix.EndToEndID, pix.Chave, int64(pix.Valor), pix.TxID, pix.Horario.UTC().Format(time.RFC3339Nano))
		if err != nil {
			return fmt.Errorf("record credit: %w", err)
		}
		return nil
	}
}

// findAccount returns errUnknownAccount if there is none.
func findAccount(ctx context.Context, db bun.IDB, chave string) (Account, error) {
	account := Account{Chave: chave}
	row := db.QueryRowContext(ctx, `
		SELECT name, balance_cents, (SELECT count(*) FROM pix_credits c WHERE c.chave = a.chave)
		FROM accounts a WHERE chave = ?`, chave)
	err := row.Scan(&account.Name, &account.Balance, &account.Credits)
	if errors.Is(err, sql.ErrNoRows) {
		return Account{}, errUnknownAccount
	}
	return account, err
}
