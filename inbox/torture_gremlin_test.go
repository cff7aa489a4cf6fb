package inbox_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/inbox/inboxtest"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

// gremlin does at random what happens to a service in a year. Its schedule
// follows from the seed alone: how a fault turns out draws no number.
type gremlin struct {
	t       *testing.T
	random  *rand.Rand
	server  *testdb.Server
	admin   *node // direct
	repo    *inbox.Repository
	proxies []*inboxtest.Proxy
	// One of each kind of process, to be killed and started again.
	processors, acceptors []*victim

	mu     sync.Mutex
	counts map[string]int
	after  sync.WaitGroup // what ends later by itself
}

// fault is one kind of mischief. n and wait are drawn for it.
type fault struct {
	name   string
	weight int
	do     func(g *gremlin, ctx context.Context, n int, wait time.Duration)
}

var faults = []fault{
	{"kill_processor", 6, func(g *gremlin, ctx context.Context, n int, wait time.Duration) {
		g.processors[n%len(g.processors)].end(wait/4, syscall.SIGKILL)
	}},
	{"stop_processor", 5, func(g *gremlin, ctx context.Context, n int, wait time.Duration) {
		g.processors[n%len(g.processors)].end(wait/4, syscall.SIGTERM)
	}},
	{"kill_acceptor", 10, func(g *gremlin, ctx context.Context, n int, wait time.Duration) {
		g.acceptors[n%len(g.acceptors)].end(wait/4, syscall.SIGKILL)
	}},
	{"terminate_backends", 12, func(g *gremlin, ctx context.Context, n int, _ time.Duration) {
		g.try(ctx, `SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity
			WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY random() LIMIT ?) some`, 1+n%6)
	}},
	{"restart_postgres", 3, func(g *gremlin, _ context.Context, _ int, _ time.Duration) {
		if err := g.server.Restart("immediate"); err != nil {
			g.t.Errorf("restart PostgreSQL: %v", err)
		}
	}},
	{"cut_connections", 8, func(g *gremlin, _ context.Context, n int, _ time.Duration) { g.proxy(n).Cut() }},
	{"cut_after_bytes", 10, func(g *gremlin, _ context.Context, n int, _ time.Duration) { g.proxy(n).CutAfter(1 + n) }},
	{"cut_before_commit", 10, func(g *gremlin, _ context.Context, n int, _ time.Duration) {
		g.proxies[0].OnCommit(1+n%5, inboxtest.LoseRequest)
	}},
	{"cut_after_commit", 10, func(g *gremlin, _ context.Context, n int, _ time.Duration) {
		g.proxies[0].OnCommit(1+n%5, inboxtest.LoseReply)
	}},
	{"swallow", 4, func(g *gremlin, ctx context.Context, n int, wait time.Duration) {
		p := g.proxy(n)
		p.Swallow(true)
		g.later(ctx, wait/2, func() { p.Swallow(false) })
	}},
	{"hold_snapshot", 6, func(g *gremlin, ctx context.Context, _ int, wait time.Duration) {
		tx, err := g.admin.db.BeginTx(ctx, nil)
		if err != nil {
			return
		}
		_, _ = tx.ExecContext(ctx, `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`)
		_, _ = tx.ExecContext(ctx, `SELECT count(*) FROM effects`)
		g.later(ctx, 4*wait, func() { _ = tx.Rollback() })
	}},
	{"sweep", 8, func(g *gremlin, ctx context.Context, _ int, _ time.Duration) {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, _ = g.repo.Sweep(ctx)
	}},
	{"pause_name", 6, func(g *gremlin, ctx context.Context, n int, wait time.Duration) {
		name := tortureNames[n%len(tortureNames)]
		_ = g.repo.Pause(ctx, name)
		g.later(ctx, 2*wait, func() { _ = g.repo.Resume(context.WithoutCancel(ctx), name) })
	}},
	{"retry_dead", 16, func(g *gremlin, ctx context.Context, _ int, _ time.Duration) { _ = g.forgive(ctx) }},
}

// haunt does one thing after the other until ctx ends, and then undoes what lasts.
func (g *gremlin) haunt(ctx context.Context) {
	total := 0
	for _, f := range faults {
		total += f.weight
	}
	for ctx.Err() == nil {
		// The numbers of one step, always the same many.
		pick, n := g.random.IntN(total), g.random.IntN(20_000)
		wait := time.Duration(100+g.random.IntN(400)) * time.Millisecond
		pause := time.Duration(20+g.random.IntN(160)) * time.Millisecond
		for _, f := range faults {
			if pick -= f.weight; pick < 0 {
				f.do(g, ctx, n, wait)
				g.count(f.name)
				break
			}
		}
		_ = sleepFor(ctx, pause)
	}
	g.after.Wait()
	for _, p := range g.proxies {
		p.Swallow(false)
		p.CutAfter(0)
		p.OnCommit(0, 0)
	}
}

func (g *gremlin) proxy(n int) *inboxtest.Proxy { return g.proxies[n%len(g.proxies)] }

func (g *gremlin) count(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.counts[name]++
}

// later ends a fault, at the latest with ctx.
func (g *gremlin) later(ctx context.Context, wait time.Duration, end func()) {
	g.after.Go(func() {
		_ = sleepFor(ctx, wait)
		end()
	})
}

// try runs a statement that may meet a fault itself.
func (g *gremlin) try(ctx context.Context, query string, args ...any) {
	_, _ = g.admin.db.NewRaw(query, args...).Exec(ctx)
}

// forgive has the handlers accept what is dead, and retries it.
func (g *gremlin) forgive(ctx context.Context) error {
	_, err := g.admin.db.NewRaw(`INSERT INTO forgiven SELECT message_id FROM inbox_messages
		WHERE id IN (SELECT id FROM inbox_queue WHERE state = 2) ON CONFLICT DO NOTHING`).Exec(ctx)
	if err != nil {
		return err
	}
	_, err = g.repo.RetryAll(ctx, inbox.Filter{}, inbox.RetryAllOptions{})
	return err
}
