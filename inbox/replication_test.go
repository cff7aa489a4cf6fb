package inbox_test

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/inbox/inboxtest"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

// openEither opens a pool that finds whichever of two servers takes writes. The
// hosts stand in a keyword/value string: as a URL with two ports, Go's own parser
// refuses them from 1.26 on.
func openEither(t *testing.T, first, second string) *bun.DB {
	t.Helper()
	a, errA := url.Parse(first)
	b, errB := url.Parse(second)
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	config, err := pgx.ParseConfig(fmt.Sprintf(
		"host=%s,%s port=%s,%s user=%s dbname=postgres sslmode=disable target_session_attrs=read-write connect_timeout=5",
		a.Hostname(), b.Hostname(), a.Port(), b.Port(), a.User.Username()))
	if err != nil {
		t.Fatal(err)
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(8)
	t.Cleanup(func() { _ = db.Close() })
	return bun.NewDB(db, pgdialect.New())
}

// keepAccepting accepts one message after the other, each until it is answered,
// and returns the ids that were.
func keepAccepting(ctx context.Context, repo *inbox.Repository, prefix string, answered func(id string)) {
	for i := 0; ctx.Err() == nil; i++ {
		id := fmt.Sprintf("%s%06d", prefix, i)
		for ctx.Err() == nil {
			try, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			_, err := repo.Accept(try, taskEntries(id))
			cancel()
			if err == nil {
				answered(id)
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// A primary dies and its synchronous standby takes over: what was answered is
// there, each message has its effect once, and the processors find the new
// primary by themselves.
func TestFailoverToASynchronousStandby(t *testing.T) {
	t.Parallel()
	primary := testdb.StartServer(t, testdb.Config{})
	standby := testdb.StartStandby(t, primary)
	open := func() *bun.DB { return openEither(t, primary.DSN(), standby.DSN()) }
	node := func() *node {
		n, err := newNodeOn(open(), inbox.Config{})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	node().migrate(t)
	for range 2 {
		node().running(t, inbox.ProcessorConfig{Workers: 2, BatchSize: 8, PollInterval: 20 * time.Millisecond})
	}

	var mu sync.Mutex
	var answered []string
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(answered) }
	accepting, stop := context.WithCancel(t.Context())
	defer stop()
	var acceptors sync.WaitGroup
	for i := range 3 {
		repo := node().repo
		acceptors.Go(func() {
			keepAccepting(accepting, repo, fmt.Sprint(i, "-"), func(id string) { mu.Lock(); defer mu.Unlock(); answered = append(answered, id) })
		})
	}

	const enough = 300
	eventually(t, "messages are accepted", 30*time.Second, func() bool { return count() >= enough })
	if err := primary.Stop("kill"); err != nil {
		t.Fatal(err)
	}
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := count()
	eventually(t, "messages are accepted by the new primary", time.Minute, func() bool { return count() >= before+enough })
	stop()
	acceptors.Wait()
	observer := node() // with a pool that never knew the old primary
	eventually(t, "the processors finish at the new primary", time.Minute, func() bool {
		return observer.count(t, `SELECT count(*) FROM inbox_queue`) == 0
	})

	stored := map[string]bool{}
	var ids []string
	if err := observer.db.NewRaw(`SELECT message_id FROM inbox_messages`).Scan(t.Context(), &ids); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		stored[id] = true
	}
	for _, id := range answered {
		if !stored[id] {
			t.Errorf("%s was answered and is lost", id)
		}
	}
	inboxtest.ExactlyOnce(t, observer.db, inboxtest.Effects{Query: `SELECT job FROM effects`})
	observer.expectOnce(t, len(ids))
}
