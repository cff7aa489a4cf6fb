package wakeup_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/inbox/inboxtest"
	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/wakeup"
)

const table = `"inbox_messages"`

// migrated returns the URL of a database with an inbox.
func migrated(t testing.TB) string {
	t.Helper()
	dsn := testdb.Postgres(t)
	db, err := testdb.OpenPGX(dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	repo, err := inbox.NewRepository(db, inbox.NewNameMap(), inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := repo.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return dsn
}

// listening counts the wake-ups of a waker, from the moment on when it is at rest.
func listening(t *testing.T, w *wakeup.Waker) *atomic.Int64 {
	t.Helper()
	var count atomic.Int64
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Listen(ctx, table, func() { count.Add(1) }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	var last int64
	var since time.Time
	inboxtest.Eventually(t, "the waker listens", func() bool {
		if now := count.Load(); now != last {
			last, since = now, time.Now()
		}
		return last > 0 && time.Since(since) > 300*time.Millisecond
	})
	count.Store(0)
	return &count
}

func openWaker(t testing.TB, dsn string, config wakeup.Config) *wakeup.Waker {
	t.Helper()
	w, err := wakeup.Open(dsn, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

func TestAProcessIsNotWokenByItsOwnNotifications(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	own, other := openWaker(t, dsn, wakeup.Config{}), openWaker(t, dsn, wakeup.Config{})
	count := listening(t, own)
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), `LISTEN "letterbox.public.inbox_messages"`); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		own.Notify(table)
		if _, err := conn.WaitForNotification(t.Context()); err != nil { // it has been sent
			t.Fatal(err)
		}
	}
	// Those of other processes come after them, in order.
	other.Notify(table)
	inboxtest.Eventually(t, "another process wakes", func() bool { return count.Load() > 0 })
	if got := count.Load(); got != 1 {
		t.Errorf("%d wake-ups, want one", got)
	}
}

func TestSettingsOfAConnectionMayChangeBeforeItOpens(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig(migrated(t))
	if err != nil {
		t.Fatal(err)
	}
	user := config.User
	config.User = "nobody of that name"
	var calls atomic.Int64
	w := wakeup.New(config, wakeup.Config{
		Backoff: inbox.Backoff{Base: time.Millisecond, Max: time.Millisecond},
		BeforeConnect: func(_ context.Context, conn *pgx.ConnConfig) error {
			if calls.Add(1) == 1 {
				return errors.New("no password today")
			}
			conn.User = user
			return nil
		},
	})
	t.Cleanup(func() { _ = w.Close() })
	listening(t, w)
	if config.User == user {
		t.Error("the caller's settings were changed")
	}
}

func TestADisconnectedWakerDoesNotStormTheServer(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig("postgres://user@127.0.0.1/db")
	if err != nil {
		t.Fatal(err)
	}
	var dials atomic.Int64
	config.DialFunc = func(context.Context, string, string) (net.Conn, error) {
		dials.Add(1)
		return nil, errors.New("nobody there")
	}
	w := wakeup.New(config, wakeup.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // what happens in a span of time
	defer cancel()
	for range 100 {
		w.Notify(table)
	}
	if err := w.Listen(ctx, table, func() { t.Error("it woke") }); err != nil {
		t.Error(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	// Two connections that double their pause from 0.1 s on; pgx may dial
	// twice, with and without TLS.
	if got := dials.Load(); got < 4 || got > 60 {
		t.Errorf("%d dials in two seconds, want a few", got)
	}
}

func TestTheErrorOfABadConnectionStringShowsNoPassword(t *testing.T) {
	t.Parallel()
	_, err := wakeup.Open("postgres://user:secret@host:port/db", wakeup.Config{})
	if err == nil {
		t.Fatal("it was taken")
	}
	if text := err.Error(); strings.Contains(text, "secret") {
		t.Errorf("%q", text)
	}
}
