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

// BenchmarkAccept stores b.N messages from 16 callers at once, without and with
// wake-ups that another process listens for.
func BenchmarkAccept(b *testing.B) {
	server := testdb.StartServer(b, testdb.Config{Durable: true})
	db, err := testdb.OpenPGX(server.DSN())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	names := inbox.NewNameMap()
	inbox.Register[job](names, "job")
	with := inbox.Config{Waker: openWaker(b, server.DSN(), wakeup.Config{})}
	for _, c := range []struct {
		name   string
		config inbox.Config
	}{{"without", inbox.Config{}}, {"with", with}} {
		repo, err := inbox.NewRepository(db, names, c.config)
		if err != nil {
			b.Fatal(err)
		}
		if err := repo.Migrate(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.Run(c.name, func(b *testing.B) {
			ctx, cancel := context.WithCancel(b.Context())
			other := openWaker(b, server.DSN(), wakeup.Config{})
			var listener sync.WaitGroup
			listener.Go(func() { _ = other.Listen(ctx, table, func() {}) })
			accept16(b, repo)
			cancel()
			listener.Wait()
		})
	}
}

func accept16(b *testing.B, repo *inbox.Repository) {
	prefix := fmt.Sprint(time.Now().UnixNano(), "-")
	payload := make([]byte, 200)
	var next atomic.Int64
	var group sync.WaitGroup
	b.ResetTimer()
	for range 16 {
		group.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				_, err := repo.Accept(b.Context(), []inbox.Entry{{MessageID: fmt.Sprint(prefix, i), Message: inbox.Raw{Name: "job", Payload: payload}}})
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}
