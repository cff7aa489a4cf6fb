package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"

	"github.com/uptrace/bun"
)

// books is what the demo counts, and what it expects.
type books struct {
	// From the answers. Deliveries are the notifications in accepted requests,
	// repeats included; Rejected counts requests.
	Deliveries, Stored, Duplicates, Mismatches, Rejected int
	Surprises                                            int // requests that were not answered as planned

	// From the inbox's statistics.
	Pending, Processed, Dead int64

	// From the tables of the bank.
	Credits  int64            // rows of pix_credits
	Credited int64            // their cents
	Balances map[string]int64 // cents, by chave
}

// expect adds a notification that is the first of its identity.
func (b *books) expect(l line) {
	b.Stored++
	if _, exists := b.Balances[l.chave]; !exists {
		b.Dead++
		return
	}
	b.Processed++
	b.Credits++
	b.Credited += l.cents
	b.Balances[l.chave] += l.cents
}

// read adds what the bank's tables hold.
func (b *books) read(ctx context.Context, db bun.IDB) error {
	row := db.QueryRowContext(ctx, `SELECT count(*), CAST(COALESCE(sum(cents), 0) AS BIGINT) FROM pix_credits`)
	if err := row.Scan(&b.Credits, &b.Credited); err != nil {
		return fmt.Errorf("read credits: %w", err)
	}
	var accounts []struct {
		Chave        string
		BalanceCents int64
	}
	if err := db.NewSelect().Table("accounts").Column("chave", "balance_cents").Scan(ctx, &accounts); err != nil {
		return fmt.Errorf("read accounts: %w", err)
	}
	b.Balances = map[string]int64{}
	for _, a := range accounts {
		b.Balances[a.Chave] = a.BalanceCents
	}
	return nil
}

// check compares, writes a line for each rule, and reports whether all hold.
func check(out io.Writer, want, got books) bool {
	all := true
	rule := func(holds bool, format string, args ...any) {
		word := "ok  "
		if !holds {
			word, all = "FAIL", false
		}
		fmt.Fprintf(out, word+"  "+format+"\n", args...)
	}
	equal := func(got, want int64, what string) {
		rule(got == want, "%s: %d of %d", what, got, want)
	}
	rule(got.Surprises == 0, "every request is answered as planned: %d are not", got.Surprises)
	equal(int64(got.Deliveries), int64(want.Deliveries), "notifications delivered, repeats included")
	equal(int64(got.Stored+got.Duplicates+got.Mismatches), int64(got.Deliveries), "each is stored, a duplicate or a mismatch")
	equal(int64(got.Stored), int64(want.Stored), "stored: each identity in the file, once")
	equal(int64(got.Duplicates), int64(want.Duplicates), "duplicates")
	equal(int64(got.Mismatches), int64(want.Mismatches), "mismatches: a known identity with another amount")
	equal(int64(got.Rejected), int64(want.Rejected), "malformed requests refused")
	rule(got.Pending == 0, "nothing is left to do: %d pending", got.Pending)
	equal(got.Processed, want.Processed, "processed")
	equal(got.Dead, want.Dead, "dead: those for unknown accounts")
	equal(got.Credits, want.Credits, "rows in pix_credits")
	equal(got.Credited, want.Credited, "cents in pix_credits")
	rule(maps.Equal(got.Balances, want.Balances), "the balance of each of %d accounts", len(want.Balances))
	return all
}

// summary is the last line of the demo.
type summary struct {
	Deliveries    int   `json:"deliveries"`
	Stored        int   `json:"stored"`
	Duplicates    int   `json:"duplicates"`
	Mismatches    int   `json:"mismatches"`
	Rejected      int   `json:"rejected"`
	Processed     int64 `json:"processed"`
	Dead          int64 `json:"dead"`
	CreditedCents int64 `json:"credited_cents"`
	ExpectedCents int64 `json:"expected_cents"`
	OK            bool  `json:"ok"`
}

var errCheckFailed = errors.New("the demo's books do not add up")

// conclude checks the books and writes the last line.
func conclude(out io.Writer, want, got books) error {
	ok := check(out, want, got)
	err := json.NewEncoder(out).Encode(summary{
		got.Deliveries, got.Stored, got.Duplicates, got.Mismatches, got.Rejected,
		got.Processed, got.Dead, got.Credited, want.Credited, ok,
	})
	if err == nil && !ok {
		err = errCheckFailed
	}
	return err
}
