package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/inbox/inboxtest"
	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/mediator"
)

// remote is the message of the tests behind a proxy.
type remote struct {
	ID string `json:"id"`
}

// proxied is an inbox whose processor reaches the database through a proxy.
type proxied struct {
	proxy  *inboxtest.Proxy
	direct *bun.DB
	far    *bun.DB
	repo   *inbox.Repository // direct
	behind *inbox.Repository
	proc   *inbox.Processor
}

func throughProxy(t *testing.T, test func(t *testing.T, p *proxied)) {
	t.Helper()
	for name, open := range map[string]func(string) (*bun.DB, error){"pgx": testdb.OpenPGX, "pgdriver": testdb.OpenPGDriver} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := testdb.Postgres(t)
			p := &proxied{}
			var through string
			p.proxy, through = inboxtest.NewProxy(t, dsn)
			names := inbox.NewNameMap()
			inbox.Register[remote](names, "remote")
			for _, side := range []struct {
				db   **bun.DB
				repo **inbox.Repository
				dsn  string
			}{{&p.direct, &p.repo, dsn}, {&p.far, &p.behind, through}} {
				db, err := open(side.dsn)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = db.Close() })
				if *side.repo, err = inbox.NewRepository(db, names, inbox.Config{}); err != nil {
					t.Fatal(err)
				}
				*side.db = db
			}
			if err := p.repo.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := p.direct.ExecContext(t.Context(), `CREATE TABLE effects (job TEXT NOT NULL)`); err != nil {
				t.Fatal(err)
			}
			test(t, p)
		})
	}
}

func (p *proxied) handler(t *testing.T, fail string) {
	t.Helper()
	requests := mediator.NewRequestMap()
	mediator.BindCommand(requests, func(ctx context.Context, c remote) error {
		_, err := inbox.DB(ctx, p.far).ExecContext(ctx, `INSERT INTO effects (job) VALUES (?)`, c.ID)
		if info, _ := inbox.FromContext(ctx); c.ID == fail && info.Attempt == 1 {
			return errors.Join(err, errors.New("once"))
		}
		return err
	})
	var err error
	p.proc, err = inbox.NewProcessor(p.behind, inbox.ProcessorConfig{
		Requests: mediator.NewRequestMediator(requests),
		Backoff:  inbox.Backoff{Base: time.Millisecond, Max: time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (p *proxied) accept(t *testing.T, n int) {
	t.Helper()
	entries := make([]inbox.Entry, n)
	for i := range entries {
		entries[i] = inbox.Entry{MessageID: fmt.Sprint(i), Message: remote{ID: fmt.Sprint(i)}}
	}
	if _, err := p.repo.Accept(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
}

// expect waits until n messages are processed, each with one effect.
func (p *proxied) expect(t *testing.T, n, attempts int) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		_, drain := p.proc.Drain(t.Context())
		stats, err := p.repo.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if stats.Processed == int64(n) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v; the last drain says %v", stats, drain)
		}
	}
	var got struct{ Effects, Jobs, Attempts int }
	err := p.direct.NewRaw(`SELECT count(*) AS effects, count(DISTINCT job) AS jobs, (SELECT sum(attempts) FROM inbox_messages) AS attempts FROM effects`).Scan(t.Context(), &got)
	if err != nil {
		t.Fatal(err)
	}
	if got.Effects != n || got.Jobs != n || got.Attempts != attempts {
		t.Errorf("%+v, want %d effects of %d jobs and %d attempts", got, n, n, attempts)
	}
}

var commitFaults = map[string]inboxtest.CommitFault{"not applied": inboxtest.LoseRequest, "applied": inboxtest.LoseReply}

func TestTheOutcomeOfACommitIsUnknown(t *testing.T) {
	t.Parallel()
	for name, fault := range commitFaults {
		t.Run("of a batch, "+name, func(t *testing.T) {
			t.Parallel()
			throughProxy(t, func(t *testing.T, p *proxied) {
				p.handler(t, "")
				p.accept(t, 10)
				p.proxy.OnCommit(1, fault)
				p.expect(t, 10, 0)
			})
		})
		for n := 1; n <= 4; n++ {
			t.Run(fmt.Sprintf("of single message %d, %s", n, name), func(t *testing.T) {
				t.Parallel()
				throughProxy(t, func(t *testing.T, p *proxied) {
					p.handler(t, "2")
					p.accept(t, 4)
					p.proxy.OnCommit(n, fault)
					// The failure of 2 may have been lost with its commit;
					// then its next run is a first attempt again.
					p.expect(t, 4, 1)
				})
			})
		}
	}
}

func TestAProcessorSurvivesCutConnections(t *testing.T) {
	t.Parallel()
	throughProxy(t, func(t *testing.T, p *proxied) {
		p.handler(t, "")
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		ended := make(chan error, 1)
		go func() { ended <- p.proc.Run(ctx) }()
		p.accept(t, 300)
		for range 10 {
			p.proxy.Refuse(true)
			p.proxy.Cut()
			time.Sleep(10 * time.Millisecond)
			p.proxy.Refuse(false)
			time.Sleep(30 * time.Millisecond)
		}
		inboxtest.Eventually(t, "all are processed", func() bool {
			stats, err := p.repo.Stats(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return stats.Processed == 300
		})
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		p.expect(t, 300, 0)
	})
}
