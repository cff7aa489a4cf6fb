package waketest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/wakeup/internal/relay"
)

const (
	channel = `"letterbox.public.inbox_messages"`
	table   = `"inbox_messages"`
)

func (s suite) acrossProcesses(t *testing.T) {
	dsn := testdb.Postgres(t)
	worker := s.process(t, dsn, dsn, inbox.Config{}, relay.Config{})
	acceptor := s.process(t, dsn, dsn, inbox.Config{}, relay.Config{})
	worker.run(t, time.Minute)
	for i := range 3 {
		worker.quiet(t)
		id := fmt.Sprint(i)
		acceptor.accept(t, id)
		accepted := time.Now()
		worker.processed(t, id)
		t.Logf("accept to effect: %v", worker.done[id].Sub(accepted))
	}
}

func (s suite) acceptsAlone(t *testing.T) {
	dsn := testdb.Postgres(t)
	worker := s.process(t, dsn, dsn, inbox.Config{}, relay.Config{})
	acceptor := s.process(t, dsn, dsn, inbox.Config{}, relay.Config{})
	worker.run(t, time.Minute)
	var group sync.WaitGroup
	for i := range 200 {
		group.Go(func() {
			_, err := acceptor.repo.Accept(t.Context(), []inbox.Entry{{MessageID: fmt.Sprint(i), Message: job{ID: fmt.Sprint(i)}}})
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	for i := range 200 {
		worker.processed(t, fmt.Sprint(i))
	}
	if len(acceptor.seen.with("INSERT INTO")) == 0 {
		t.Error("the hook has seen no statement")
	}
	for _, word := range []string{"NOTIFY", "LISTEN"} {
		if sent := acceptor.seen.with(word); len(sent) > 0 {
			t.Errorf("the pool of accepts sent %q", sent)
		}
	}
}

func (s suite) coalesced(t *testing.T) {
	const interval = 20 * time.Millisecond
	dsn := testdb.Postgres(t)
	acceptor := s.process(t, dsn, dsn, inbox.Config{}, relay.Config{Interval: interval})
	heard := listen(t, dsn, channel)
	acceptor.accept(t, "first")
	eventually(t, "the first accept is notified", func() bool { return heard.Load() == 1 })
	began := time.Now()
	var group sync.WaitGroup
	for w := range 10 {
		group.Go(func() {
			for i := range 100 {
				acceptor.accept(t, fmt.Sprint(w, "-", i))
			}
		})
	}
	group.Wait()
	took := time.Since(began)
	if err := acceptor.waker.Close(); err != nil {
		t.Fatal(err)
	}
	connect(t, dsn) // the last notification is on its way, or here
	limit := int64(took/interval) + 3
	eventually(t, "a notification came", func() bool { return heard.Load() > 1 })
	if got := heard.Load(); got > limit {
		t.Errorf("%d notifications of 1,001 accepts in %v, want %d at most", got, took, limit)
	}
	t.Logf("%d notifications of 1,001 accepts in %v", heard.Load(), took)
}

// listen counts the notifications on a channel.
func listen(t *testing.T, dsn, channel string) *atomic.Int64 {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "LISTEN "+channel); err != nil {
		t.Fatal(err)
	}
	var heard atomic.Int64
	background(t, func(ctx context.Context) error {
		defer conn.Close(context.Background())
		for {
			n, err := conn.WaitForNotification(ctx)
			if err != nil {
				return nil
			}
			if n.Payload != "" {
				t.Errorf("a notification with payload %q", n.Payload)
			}
			heard.Add(1)
		}
	})
	return &heard
}

// wakes counts the wake-ups of a waker that listens, and returns once it does.
func wakes(t *testing.T, w Waker, table string) (count *atomic.Int64, stop func()) {
	t.Helper()
	count = &atomic.Int64{}
	stop = background(t, func(ctx context.Context) error {
		return w.Listen(ctx, table, func() { count.Add(1) })
	})
	eventually(t, "the waker listens", func() bool { return count.Load() > 0 })
	return count, stop
}

// settled waits until no more wake-ups come: those of the start are over.
func settled(t *testing.T, count *atomic.Int64) int64 {
	t.Helper()
	last, since := count.Load(), time.Now()
	eventually(t, "wake-ups have ended", func() bool {
		if now := count.Load(); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > 300*time.Millisecond
	})
	return last
}

func (s suite) twoInboxes(t *testing.T) {
	dsn := testdb.Postgres(t)
	conn := connect(t, dsn)
	for _, text := range []string{`CREATE SCHEMA other`, `CREATE SCHEMA "Ünï.x"`} {
		if _, err := conn.Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	configs := []inbox.Config{{}, {Prefix: "other"}, {Schema: "other"}, {Schema: "Ünï.x", Prefix: strings.Repeat("long_", 8)}}
	tables := []string{table, `"other_messages"`, `"other"."inbox_messages"`, `"Ünï.x"."` + strings.Repeat("long_", 8) + `_messages"`}
	processes := make([]*process, len(configs))
	counts := make([]*atomic.Int64, len(configs))
	listener := s.waker(t, dsn, relay.Config{})
	for i := range configs {
		processes[i] = s.process(t, dsn, dsn, configs[i], relay.Config{})
		counts[i], _ = wakes(t, listener, tables[i])
	}
	for i := range configs {
		var before []int64
		for _, count := range counts {
			before = append(before, settled(t, count))
		}
		processes[i].accept(t, "m")
		eventually(t, "the inbox's own listener is woken", func() bool { return counts[i].Load() > before[i] })
		for j := range configs {
			if settled(t, counts[j]) > before[j] && j != i {
				t.Errorf("inbox %d woke inbox %d", i, j)
			}
		}
	}
	// Unqualified and qualified are the same inbox.
	before := settled(t, counts[0])
	s.waker(t, dsn, relay.Config{}).Notify(`"public"."inbox_messages"`)
	eventually(t, "the name with its schema is the same inbox", func() bool { return counts[0].Load() > before })
}

func (s suite) idle(t *testing.T) {
	dsn := testdb.Postgres(t)
	worker := s.process(t, dsn, dsn, inbox.Config{}, relay.Config{})
	worker.accept(t, "own")
	worker.run(t, time.Minute)
	worker.processed(t, "own")
	worker.quiet(t)
	before := len(worker.looks())
	time.Sleep(time.Second) // it is what happens in a span of time that counts
	if looks := worker.looks()[before:]; len(looks) > fewLooks {
		t.Errorf("%d statements in an idle second: %q", len(looks), looks)
	}
}
