package inbox_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

// benchTargets runs a benchmark on each database: PostgreSQL that waits for the
// disk at each commit, as in production, and SQLite.
func benchTargets(b *testing.B, bench func(b *testing.B, n *node)) {
	b.Run("PostgreSQL", func(b *testing.B) {
		server := testdb.StartServer(b, testdb.Config{Durable: true})
		bench(b, openNode(b, target{"pgx", server.DSN()}, false))
	})
	b.Run("SQLite", func(b *testing.B) {
		bench(b, openNode(b, target{"sqlite", testdb.SQLiteFile(b)}, false))
	})
}

// perSecond reports messages per second next to the time of one.
func perSecond(b *testing.B, messages int) {
	b.ReportMetric(float64(messages)/b.Elapsed().Seconds(), "msg/s")
}

// BenchmarkDrain processes b.N messages in one worker, with one INSERT each.
func BenchmarkDrain(b *testing.B) {
	benchTargets(b, func(b *testing.B, n *node) {
		for _, size := range []int{1, 32, 100} {
			b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
				prefix := fmt.Sprintf("%d-%d-", size, time.Now().UnixNano())
				for from := 0; from < b.N; from += 1000 {
					n.accept(b, taskIDs(fmt.Sprint(prefix, from, "-"), min(1000, b.N-from))...)
				}
				p := n.mustProcessor(b, inbox.ProcessorConfig{BatchSize: size})
				b.ResetTimer()
				if got := n.drain(b, p); got != b.N {
					b.Fatalf("%d processed, want %d", got, b.N)
				}
				perSecond(b, b.N)
			})
		}
	})
}

// BenchmarkAccept stores b.N messages: one after another, from 16 callers at
// once, and in batches.
func BenchmarkAccept(b *testing.B) {
	benchTargets(b, func(b *testing.B, n *node) {
		b.Run("one caller", func(b *testing.B) { benchAccept(b, n, 1, 1) })
		b.Run("16 callers", func(b *testing.B) { benchAccept(b, n, 16, 1) })
		b.Run("batches of 100", func(b *testing.B) { benchAccept(b, n, 1, 100) })
	})
}

// benchAccept stores at least b.N messages.
func benchAccept(b *testing.B, n *node, callers, size int) {
	prefix := fmt.Sprintf("%d-%d-%d-", callers, size, time.Now().UnixNano())
	var next atomic.Int64
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for {
				i := int(next.Add(1)-1) * size
				if i >= b.N {
					return
				}
				if _, err := n.repo.Accept(b.Context(), taskEntries(taskIDs(fmt.Sprint(prefix, i, "-"), size)...)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	perSecond(b, b.N)
}
