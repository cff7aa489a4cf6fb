package wakeup_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/wakeup"
)

type job struct{}

// BenchmarkAccept stores b.N messages from 16 callers at once, with and without
// wake-ups that another process listens for, in turns, so that both meet the
// same machine. The figure to look at is their ratio.
func BenchmarkAccept(b *testing.B) {
	server := testdb.StartServer(b, testdb.Config{Durable: true})
	db, err := testdb.OpenPGX(server.DSN())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	names := inbox.NewNameMap()
	inbox.Register[job](names, "job")
	var repos [2]*inbox.Repository
	for i, config := range []inbox.Config{{}, {Waker: openWaker(b, server.DSN(), wakeup.Config{})}} {
		if repos[i], err = inbox.NewRepository(db, names, config); err != nil {
			b.Fatal(err)
		}
	}
	if err := repos[0].Migrate(b.Context()); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	other := openWaker(b, server.DSN(), wakeup.Config{})
	var heard atomic.Int64
	var listener sync.WaitGroup
	listener.Go(func() { _ = other.Listen(ctx, table, func() { heard.Add(1) }) })
	defer listener.Wait()
	defer cancel()

	const turn = 400
	var took [2]time.Duration
	accept16(b, repos[0], turn)
	b.ResetTimer()
	for done := 0; done < b.N; done += 4 * turn {
		for _, i := range []int{0, 1, 1, 0} {
			began := time.Now()
			accept16(b, repos[i], turn)
			took[i] += time.Since(began)
		}
	}
	b.ReportMetric(took[0].Seconds()/took[1].Seconds(), "with/without")
	b.ReportMetric(float64(heard.Load())/took[1].Seconds(), "wake-ups/s")
}

// accept16 stores n messages.
func accept16(b *testing.B, repo *inbox.Repository, n int64) {
	prefix := fmt.Sprint(time.Now().UnixNano(), "-")
	payload := make([]byte, 200)
	var next atomic.Int64
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			for i := next.Add(1); i <= n; i = next.Add(1) {
				_, err := repo.Accept(b.Context(), []inbox.Entry{{MessageID: fmt.Sprint(prefix, i), Message: inbox.Raw{Name: "job", Payload: payload}}})
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
}
