package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
)

var shortBackoff = inbox.Backoff{Base: time.Millisecond, Max: 10 * time.Millisecond}

func ana(t *testing.T, a *app) Account {
	t.Helper()
	account, err := findAccount(t.Context(), a.db, "ana@example.com")
	if err != nil {
		t.Fatal(err)
	}
	return account
}

func TestAnUnknownAccountDiesAndHoldsUpNobody(t *testing.T) {
	t.Parallel()
	unknown := strings.Replace(pix(idA, "5.00"), "ana@example.com", "nobody@example.com", 1)
	onBoth(t, func(t *testing.T, dsn string) {
		app := openApp(t, dsn)
		url := serveApp(t, app.routes())
		wantReceipt(t, post(t, url, body(unknown, pix(idB, "1.10"), pix(idC, "0.01"))), receipt{Received: 3, Accepted: 3})
		processor, err := app.processor(inbox.Backoff{Base: time.Hour, Max: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := processor.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := ana(t, app); got.Balance != 111 || got.Credits != 2 {
			t.Errorf("the neighbours are not credited: %+v", got)
		}
		stats, err := app.repo.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if stats.Pending != 1 || stats.Dead != 0 || stats.Processed != 2 {
			t.Errorf("an unknown account is not retried: %+v", stats)
		}
	})
}

func TestAnUnknownAccountIsRetriedUntilItIsOpenedOrTheMessageIsDead(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, dsn string) {
		app := openApp(t, dsn)
		url := serveApp(t, app.routes())
		processor, err := app.processor(shortBackoff)
		if err != nil {
			t.Fatal(err)
		}
		inBackground(t, processor.Run)
		wantReceipt(t, post(t, url, body(strings.Replace(pix(idA, "5.00"), "ana", "nobody", 1))), receipt{Received: 1, Accepted: 1})
		eventually(t, func() string {
			var got stats
			if err := json.Unmarshal([]byte(do(t, http.MethodGet, url+"/inbox/stats", "", "").body), &got); err != nil {
				return err.Error()
			}
			if got.Dead != 1 || got.Pending != 0 || got.Processed != 0 {
				return "the notification is not dead"
			}
			return ""
		})
		var attempts int
		var reason string
		row := app.db.QueryRowContext(t.Context(), "SELECT attempts, last_error FROM inbox_messages")
		if err := row.Scan(&attempts, &reason); err != nil {
			t.Fatal(err)
		}
		if attempts != 5 || reason != errUnknownAccount.Error() {
			t.Errorf("dead after %d attempts: %s", attempts, reason)
		}
	})
}

func TestACreditThatFailsHalfWayLeavesTheBalance(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, dsn string) {
		app := openApp(t, dsn)
		// Credited before, by somebody else: the balance is updated, then the
		// row is refused.
		if _, err := app.db.ExecContext(t.Context(), `INSERT INTO pix_credits (end_to_end_id, chave, cents, txid, horario)
			VALUES (?, 'ana@example.com', 100, 't', '2026-01-01T00:00:00Z')`, idA); err != nil {
			t.Fatal(err)
		}
		url := serveApp(t, app.routes())
		wantReceipt(t, post(t, url, body(pix(idA, "1.00"), pix(idB, "2.00"))), receipt{Received: 2, Accepted: 2})
		processor, err := app.processor(inbox.Backoff{Base: time.Hour, Max: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := processor.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := ana(t, app); got.Balance != 200 || got.Credits != 2 {
			t.Errorf("got %+v, want a balance of 2.00 from idB alone", got)
		}
	})
}

func TestTheHandlerWorksWithoutTheInbox(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, dsn string) {
		app := openApp(t, dsn)
		credit := creditPix(app.db)
		command := CreditPix{EndToEndID: idA, TxID: "t", Valor: 110, Horario: time.Now(), Chave: "ana@example.com"}
		if err := credit(t.Context(), command); err != nil {
			t.Fatal(err)
		}
		if got := ana(t, app); got.Balance != 110 || got.Credits != 1 {
			t.Errorf("got %+v", got)
		}
		command.Chave = "nobody"
		if err := credit(t.Context(), command); !errors.Is(err, errUnknownAccount) {
			t.Errorf("got %v, want errUnknownAccount", err)
		}
	})
}

func TestAnAccountIsReadWithItsBalanceAsADecimalString(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, dsn string) {
		app := openApp(t, dsn)
		if err := creditPix(app.db)(t.Context(), CreditPix{EndToEndID: idA, Valor: 999999999905, Horario: time.Now(), Chave: "+5511912560042"}); err != nil {
			t.Fatal(err)
		}
		got := do(t, http.MethodGet, serveApp(t, app.routes())+"/accounts/+5511912560042", "", "")
		want := `{"chave":"+5511912560042","name":"Bruno","balance":"9999999999.05","credits":1}` + "\n"
		if got.status != http.StatusOK || got.body != want {
			t.Errorf("%d %s, want %s", got.status, got.body, want)
		}
	})
}

func TestManyProcessesMaySetUpOneDatabaseAtOnce(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, dsn string) {
		const processes = 6
		errs := make(chan error, processes)
		for range processes {
			go func() {
				db, err := openDatabase(dsn)
				if err == nil {
					_, err = newApp(t.Context(), db, discard)
					err = errors.Join(err, db.Close())
				}
				errs <- err
			}()
		}
		for range processes {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	})
}
