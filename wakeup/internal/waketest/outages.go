package waketest

import (
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/inbox/inboxtest"
	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/wakeup/internal/relay"
)

func (s suite) terminated(t *testing.T) {
	const times = 100
	dsn := testdb.Postgres(t)
	acceptor := s.process(t, dsn, dsn, inbox.Config{}, relay.Config{})
	conn := connect(t, dsn)
	waker := s.waker(t, named(t, dsn, "listener"), relay.Config{Backoff: soon})
	count, stop := wakes(t, waker, table)
	settled(t, count)
	goroutines := runtime.NumGoroutine()
	for i := range times {
		before := count.Load()
		for _, pid := range backends(t, conn, "listener") {
			query[bool](t, conn, `SELECT pg_terminate_backend($1)`, pid)
		}
		eventually(t, "the waker listens again and wakes", func() bool { return count.Load() > before })
		if i%10 == 0 {
			before := settled(t, count)
			acceptor.accept(t, time.Now().String())
			eventually(t, "a notification wakes", func() bool { return count.Load() > before })
		}
	}
	settled(t, count)
	// A leak is one per termination.
	if now := runtime.NumGoroutine(); now > goroutines+times/10 {
		t.Errorf("%d goroutines, %d before", now, goroutines)
	}
	if open := backends(t, conn, "listener"); len(open) > 2 {
		t.Errorf("%d connections are open", len(open))
	}
	stop()
	_ = waker.Close()
	eventually(t, "no connection is left", func() bool { return len(backends(t, conn, "listener")) == 0 })
}

func (s suite) committedMeanwhile(t *testing.T) {
	dsn := testdb.Postgres(t)
	proxy, through := inboxtest.NewProxy(t, dsn)
	worker := s.process(t, dsn, named(t, through, "listener"), inbox.Config{}, relay.Config{Backoff: soon})
	acceptor := s.process(t, dsn, dsn, inbox.Config{}, relay.Config{})
	conn := connect(t, dsn)
	worker.run(t, time.Minute)
	worker.quiet(t)
	proxy.Refuse(true)
	proxy.Cut()
	eventually(t, "the listener is gone", func() bool { return len(backends(t, conn, "listener")) == 0 })
	acceptor.accept(t, "meanwhile")
	worker.quiet(t)
	proxy.Refuse(false)
	worker.processed(t, "meanwhile")
}

func (s suite) restarted(t *testing.T) {
	server := testdb.StartServer(t, testdb.Config{})
	worker := s.process(t, server.DSN(), server.DSN(), inbox.Config{}, relay.Config{Backoff: soon})
	acceptor := s.process(t, server.DSN(), server.DSN(), inbox.Config{}, relay.Config{Backoff: soon})
	count, _ := wakes(t, worker.waker, table)
	for _, mode := range []string{"fast", "immediate"} {
		before := settled(t, count)
		if err := server.Restart(mode); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the waker wakes after the restart", func() bool { return count.Load() > before })
		before = settled(t, count)
		eventually(t, "a message is accepted", func() bool {
			_, err := acceptor.repo.Accept(t.Context(), []inbox.Entry{{MessageID: mode, Message: job{ID: mode}}})
			return err == nil
		})
		eventually(t, "its notification wakes", func() bool { return count.Load() > before })
		settled(t, count)
	}
}

// A connection whose other end says nothing at all, not even that it is gone.
func (s suite) vanished(t *testing.T) {
	dsn := testdb.Postgres(t)
	acceptor := s.process(t, dsn, dsn, inbox.Config{}, relay.Config{})
	proxy, through := inboxtest.NewProxy(t, dsn)
	waker := s.waker(t, through, relay.Config{Backoff: soon, KeepAlive: 300 * time.Millisecond})
	count, _ := wakes(t, waker, table)
	before := settled(t, count)
	proxy.Swallow(true)
	time.Sleep(3 * time.Second) // the waker tries the connection meanwhile
	// This cuts the connections that have tried, and leaves those alone that
	// have noticed nothing.
	proxy.Swallow(false)
	eventually(t, "the waker wakes", func() bool { return count.Load() > before })
	before = settled(t, count)
	acceptor.accept(t, "m")
	eventually(t, "a notification wakes", func() bool { return count.Load() > before })
}

func (s suite) swallowed(t *testing.T) {
	dsn := testdb.Postgres(t)
	log := &lines{}
	worker := s.process(t, dsn, withoutNotifications(t, dsn), inbox.Config{}, relay.Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
	acceptor := s.process(t, dsn, dsn, inbox.Config{}, relay.Config{})
	stop := worker.run(t, 100*time.Millisecond)
	eventually(t, "there is a warning", func() bool { return log.with("notifications do not arrive") > 0 })
	acceptor.accept(t, "polled")
	worker.processed(t, "polled")
	stop()
	if all, warned := log.with(""), log.with("notifications do not arrive"); all != 1 || warned != 1 {
		t.Errorf("%d lines, %d warnings, want one line:\n%s", all, warned, log)
	}
}

func (s suite) away(t *testing.T) {
	dsn := testdb.Postgres(t)
	proxy, through := inboxtest.NewProxy(t, dsn)
	proxy.Refuse(true)
	log := &lines{}
	worker := s.process(t, dsn, through, inbox.Config{}, relay.Config{
		Backoff: inbox.Backoff{Base: 100 * time.Millisecond, Max: time.Second},
		Logger:  slog.New(slog.NewTextHandler(log, nil)),
	})
	worker.accept(t, "m")
	worker.run(t, time.Minute)
	worker.processed(t, "m") // the workers do not wait for ever
	worker.quiet(t)
	before := len(worker.looks())
	time.Sleep(2 * time.Second) // it is what happens in a span of time that counts
	if looks := worker.looks()[before:]; len(looks) > fewLooks {
		t.Errorf("%d statements while disconnected: %q", len(looks), looks)
	}
	if listening, notifying := log.with("the connection that listens is lost"), log.with("cannot notify"); listening != 1 || notifying != 1 {
		t.Errorf("%d lines of the listener and %d of the sender, want one of each:\n%s", listening, notifying, log)
	}
	proxy.Refuse(false)
	eventually(t, "the recovery is logged", func() bool { return log.with("listens is back") == 1 })
}

// hangs has a server that takes connections and never says anything.
func (s suite) hangs(t *testing.T) {
	dsn := testdb.Postgres(t)
	proxy, through := inboxtest.NewProxy(t, dsn)
	proxy.Swallow(true)
	acceptor := s.process(t, dsn, through, inbox.Config{}, relay.Config{})
	before := time.Now()
	for i := range 50 {
		acceptor.accept(t, string(rune('A'+i)))
	}
	if took := time.Since(before); took > 5*time.Second {
		t.Errorf("50 accepts took %v", took)
	}
	before = time.Now()
	if err := acceptor.waker.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(before); took > 8*time.Second {
		t.Errorf("Close took %v", took)
	}
}

func (s suite) unused(t *testing.T) {
	dsn := testdb.Postgres(t)
	conn := connect(t, dsn)
	acceptor := s.process(t, dsn, named(t, dsn, "sender"), inbox.Config{}, relay.Config{Idle: 50 * time.Millisecond})
	for i := range 3 {
		acceptor.accept(t, string(rune('A'+i)))
		eventually(t, "the sender connects", func() bool { return len(backends(t, conn, "sender")) == 1 })
		eventually(t, "it leaves without Close", func() bool { return len(backends(t, conn, "sender")) == 0 })
	}
}
