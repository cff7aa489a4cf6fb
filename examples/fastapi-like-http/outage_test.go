package main

import (
	"net/http"
	"testing"

	"github.com/letterbox-go/letterbox/internal/testdb"
)

// wantUnavailable checks every route while the database is down.
func wantUnavailable(t *testing.T, url string) {
	t.Helper()
	for _, got := range []response{
		post(t, url, body(pix(idA, "1.00"))),
		do(t, http.MethodGet, url+"/accounts/ana@example.com", "", ""),
		do(t, http.MethodGet, url+"/inbox/stats", "", ""),
		do(t, http.MethodGet, url+"/healthz", "", ""),
	} {
		wantProblem(t, got, http.StatusServiceUnavailable)
		if after := got.header.Get("Retry-After"); after != retryAfter {
			t.Errorf("Retry-After is %q, want %q", after, retryAfter)
		}
	}
	// What is wrong with the request is still said.
	wantProblem(t, post(t, url, body(pix("x", "1.00"))), http.StatusUnprocessableEntity)
}

func TestWhileTheDatabaseIsDownTheProviderIsAskedToComeBack(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		dsn := testdb.SQLiteFile(t)
		app := openApp(t, dsn)
		url := serveApp(t, app.routes())
		if err := app.db.Close(); err != nil {
			t.Fatal(err)
		}
		wantUnavailable(t, url)
		if n := stored(t, openApp(t, dsn)); n != 0 {
			t.Errorf("%d rows", n)
		}
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		server := testdb.StartServer(t, testdb.Config{})
		app := openApp(t, server.DSN())
		url := serveApp(t, app.routes())
		if got := do(t, http.MethodGet, url+"/healthz", "", ""); got.status != http.StatusOK {
			t.Errorf("healthz before: %d %s", got.status, got.body)
		}
		for _, mode := range []string{"fast", "kill"} {
			if err := server.Stop(mode); err != nil {
				t.Fatal(err)
			}
			wantUnavailable(t, url)
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
			if n := stored(t, openApp(t, server.DSN())); n != 0 {
				t.Errorf("%d rows", n)
			}
		}
		// The pool recovers by itself.
		eventually(t, func() string {
			if got := do(t, http.MethodGet, url+"/healthz", "", ""); got.status != http.StatusOK {
				return got.body
			}
			return ""
		})
		wantReceipt(t, post(t, url, body(pix(idA, "1.00"))), receipt{Received: 1, Accepted: 1})
	})
}
