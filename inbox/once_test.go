package inbox_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/inbox/inboxtest"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

// once handles a task inline.
func (n *node) once(ctx context.Context, id string) (fresh bool, err error) {
	return n.repo.HandleOnce(ctx, inbox.Receipt{MessageID: id, Name: "task"}, func(ctx context.Context, _ bun.IDB) error {
		return n.handle(ctx, task{ID: id})
	})
}

func TestEightProcessesHandleOneMessageInlineOnce(t *testing.T) {
	t.Parallel()
	targets(t, func(t *testing.T, target target) {
		n := openNode(t, target, false)
		ids := taskIDs("once", 25)
		var waits []func() error
		for range 8 {
			waits = append(waits, order{Role: "once", Target: target, IDs: ids}.child(t))
		}
		for _, wait := range waits {
			if err := wait(); err != nil {
				t.Error(err)
			}
		}
		n.expectOnce(t, len(ids))
	})
}

func TestTheReplyToAnInlineCommitIsLost(t *testing.T) {
	t.Parallel()
	for driver, open := range map[string]func(string) (*bun.DB, error){"pgx": testdb.OpenPGX, "pgdriver": testdb.OpenPGDriver} {
		for name, fault := range map[string]inboxtest.CommitFault{"applied": inboxtest.LoseReply, "not applied": inboxtest.LoseRequest} {
			t.Run(driver+", "+name, func(t *testing.T) {
				t.Parallel()
				direct := openNode(t, target{"pgx", testdb.Postgres(t)}, false)
				proxy, through := inboxtest.NewProxy(t, direct.target.DSN)
				db, err := open(through)
				if err != nil {
					t.Fatal(err)
				}
				defer db.Close()
				n, err := newNodeOn(db, inbox.Config{})
				if err != nil {
					t.Fatal(err)
				}
				proxy.OnCommit(1, fault)
				if fresh, err := n.once(t.Context(), "a"); fresh || err == nil {
					t.Fatalf("the lost commit: fresh %v, %v", fresh, err)
				}
				// The redelivery.
				if fresh, err := n.once(t.Context(), "a"); err != nil || fresh != (fault == inboxtest.LoseRequest) {
					t.Errorf("the redelivery: fresh %v, %v", fresh, err)
				}
				direct.expectOnce(t, 1)
			})
		}
	}
}

// BenchmarkHandleOnce compares 16 callers with the same statements by hand, in
// turns, so that both meet the same noise.
func BenchmarkHandleOnce(b *testing.B) {
	server := testdb.StartServer(b, testdb.Config{Durable: true})
	n := openNode(b, target{"pgx", server.DSN()}, false)
	library := func(ctx context.Context, id string) error { _, err := n.once(ctx, id); return err }
	for range 2 { // connections and files are there before it counts
		benchOnce(b, library, 200)
		benchOnce(b, n.onceByHand, 200)
	}
	const round = 500
	var ours, byHand time.Duration
	b.ResetTimer()
	for turn := range max(b.N/round, 2) {
		if turn%2 == 0 {
			ours += benchOnce(b, library, round)
			byHand += benchOnce(b, n.onceByHand, round)
		} else {
			byHand += benchOnce(b, n.onceByHand, round)
			ours += benchOnce(b, library, round)
		}
	}
	messages := float64(max(b.N/round, 2) * round)
	b.ReportMetric(messages/ours.Seconds(), "msg/s")
	b.ReportMetric(messages/byHand.Seconds(), "by-hand-msg/s")
	b.ReportMetric(100*byHand.Seconds()/ours.Seconds(), "%-of-by-hand")
}

func benchOnce(b *testing.B, once func(ctx context.Context, id string) error, messages int) time.Duration {
	var group sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(messages))
	began := time.Now()
	for range 16 {
		group.Go(func() {
			for left.Add(-1) >= 0 {
				if err := once(b.Context(), inbox.NewMessageID()); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	return time.Since(began)
}

// onceByHand sends what HandleOnce sends, without the library.
func (n *node) onceByHand(ctx context.Context, id string) error {
	return n.db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		result, err := tx.ExecContext(ctx, `
			INSERT INTO inbox_messages (source, message_id, name, ordering_key, metadata, status, received_at, processed_at)
			SELECT r.source, r.message_id, r.name, '', r.metadata, 1, clock_timestamp(), clock_timestamp()
			FROM (SELECT ''::text AS source, ?::text AS message_id, 'task'::text AS name, ''::text AS metadata) r
			WHERE NOT EXISTS (
				SELECT FROM inbox_messages m WHERE m.source = r.source AND m.message_id = r.message_id AND m.name = r.name)
			ON CONFLICT DO NOTHING`, id)
		if err != nil {
			return err
		}
		if fresh, err := result.RowsAffected(); err != nil || fresh == 0 {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO effects (job) VALUES (?)`, id)
		return err
	})
}
