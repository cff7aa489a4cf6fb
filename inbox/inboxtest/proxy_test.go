package inboxtest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox/inboxtest"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

func TestProxy(t *testing.T) {
	t.Parallel()
	behind := func(t *testing.T) (*inboxtest.Proxy, *bun.DB) {
		t.Helper()
		proxy, through := inboxtest.NewProxy(t, testdb.Postgres(t))
		db, err := testdb.OpenPGX(through)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		return proxy, db
	}
	ask := func(ctx context.Context, db *bun.DB) error {
		var one int
		return db.NewRaw(`SELECT 1`).Scan(ctx, &one)
	}

	t.Run("what is swallowed is neither answered nor refused, and all is well afterwards", func(t *testing.T) {
		t.Parallel()
		proxy, db := behind(t)
		db.SetMaxOpenConns(1)
		if err := ask(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		proxy.Swallow(true)
		for _, connection := range []string{"an old", "a new"} { // the time-out costs the first
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			if err := ask(ctx, db); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s connection: %v, want the end of the context", connection, err)
			}
			cancel()
		}
		waiting := make(chan error, 1)
		go func() { waiting <- ask(context.Background(), db) }()
		select {
		case err := <-waiting:
			t.Errorf("answered through the hole: %v", err)
		case <-time.After(100 * time.Millisecond):
		}
		proxy.Swallow(false)
		select {
		case <-waiting: // cut, or tried again: it does not wait for ever
		case <-time.After(10 * time.Second):
			t.Error("the connection that lost its query was not cut")
		}
		if err := ask(t.Context(), db); err != nil {
			t.Error(err)
		}
	})

	t.Run("a connection is cut behind the n-th byte, once", func(t *testing.T) {
		t.Parallel()
		proxy, db := behind(t)
		db.SetMaxOpenConns(1)
		if err := ask(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		failed := 0
		for n := 1; n <= 200; n += 7 {
			proxy.CutAfter(n)
			for range 2 { // a query on a warm connection takes some 150 bytes
				if _, err := db.ExecContext(t.Context(), `SELECT repeat('x', 100)`); err != nil {
					failed++
				}
			}
			proxy.CutAfter(0)
			if err := ask(t.Context(), db); err != nil {
				t.Fatalf("after the cut behind byte %d: %v", n, err)
			}
		}
		if failed < 10 {
			t.Errorf("only %d of 29 cuts were felt", failed)
		}
	})
}
