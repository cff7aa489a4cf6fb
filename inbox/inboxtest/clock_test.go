package inboxtest_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/inbox/inboxtest"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

func TestClock(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.FixedZone("somewhere", 5*3600))

	t.Run("it stands still, and moves by what it is told, from any goroutine", func(t *testing.T) {
		t.Parallel()
		clock := inboxtest.NewClock(start)
		var group sync.WaitGroup
		for range 10 {
			group.Go(func() { clock.Advance(time.Minute); _ = clock.Now() })
		}
		group.Wait()
		clock.Advance(-time.Minute)
		if got, want := clock.Now(), start.Add(9*time.Minute); !got.Equal(want) {
			t.Errorf("it shows %v, want %v", got, want)
		}
	})

	for name, open := range map[string]func(testing.TB) *bun.DB{"PostgreSQL": testdb.PGX, "SQLite": testdb.SQLite} {
		t.Run("a message is due when the clock says so, on "+name, func(t *testing.T) {
			t.Parallel()
			clock := inboxtest.NewClock(start)
			b := openBank(t, open(t), inbox.Config{Clock: clock.Now})
			_, err := b.repo.Accept(t.Context(), []inbox.Entry{{MessageID: "1", Message: transfer{"1"}, Due: start.Add(time.Hour)}})
			if err != nil {
				t.Fatal(err)
			}
			drain := func(ctx context.Context) int {
				n, err := b.proc.Drain(ctx)
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			clock.Advance(time.Hour - time.Microsecond)
			if n := drain(t.Context()); n != 0 {
				t.Errorf("%d processed a moment too early", n)
			}
			clock.Advance(time.Microsecond)
			if n := drain(t.Context()); n != 1 {
				t.Errorf("%d processed when it was due", n)
			}
			status, err := b.repo.Status(t.Context(), inbox.Identity{MessageID: "1", Name: "transfer"})
			if err != nil || !status.ReceivedAt.Equal(start) || !status.ProcessedAt.Equal(start.Add(time.Hour)) {
				t.Errorf("%+v, %v", status, err)
			}
		})
	}
}
