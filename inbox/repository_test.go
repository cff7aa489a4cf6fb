package inbox_test

import (
	"errors"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

// lossy is a TCP proxy that loses one piece of traffic, and the connection with it.
type lossy struct {
	listener net.Listener
	server   string
	request  atomic.Bool // lose the next thing a client sends
	reply    atomic.Bool // lose the next thing the server sends
	lost     atomic.Int32
	serving  sync.WaitGroup
}

func newLossy(t *testing.T, dsn string) (l *lossy, through string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	l = &lossy{server: u.Host}
	if l.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	l.serving.Go(l.serve)
	t.Cleanup(func() {
		_ = l.listener.Close()
		l.serving.Wait()
	})
	u.Host = l.listener.Addr().String()
	return l, u.String()
}

func (l *lossy) serve() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", l.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		l.serving.Go(func() { l.copy(server, client, &l.request) })
		l.serving.Go(func() { l.copy(client, server, &l.reply) })
	}
}

func (l *lossy) copy(to, from net.Conn, lose *atomic.Bool) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if lose.CompareAndSwap(true, false) {
			l.lost.Add(1)
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func TestTheReplyToAnAcceptIsLost(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(string) (*bun.DB, error){"pgx": testdb.OpenPGX, "pgdriver": testdb.OpenPGDriver} {
		for what, applied := range map[string]bool{"and it was applied": true, "and it never arrived": false} {
			for way, former := range map[string][]string{"one statement": nil, "a transaction": {"was_placed"}} {
				t.Run(name+", "+what+", "+way, func(t *testing.T) {
					t.Parallel()
					acceptWithLoss(t, open, applied, former)
				})
			}
		}
	}
}

// acceptWithLoss loses the request, or the reply, of the last statement of an
// accept. Whatever Accept then says, it is true, and a retry puts it right.
func acceptWithLoss(t *testing.T, open func(string) (*bun.DB, error), applied bool, former []string) {
	dsn := testdb.Postgres(t)
	proxy, through := newLossy(t, dsn)
	names := inbox.NewNameMap()
	inbox.RegisterWith[orderPlaced](names, inbox.Registration{Name: "placed", FormerNames: former})
	var repos [2]*inbox.Repository // direct, and through the proxy
	var dbs [2]*bun.DB
	for i, dsn := range []string{dsn, through} {
		db, err := open(dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		// A connection is there before anything gets lost.
		if err := db.PingContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		dbs[i] = db
		if repos[i], err = inbox.NewRepository(db, names, inbox.Config{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := repos[0].Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	rows := func() (n int) {
		if err := dbs[0].NewRaw(`SELECT count(*) FROM inbox_messages`).Scan(t.Context(), &n); err != nil {
			t.Fatal(err)
		}
		return n
	}

	var once sync.Once
	lose := func() {
		once.Do(func() {
			if applied {
				proxy.reply.Store(true)
			} else {
				proxy.request.Store(true)
			}
		})
	}
	var err error
	repos[1], err = inbox.NewRepository(dbs[1].WithQueryHook(hook{
		before: func(event *bun.QueryEvent) {
			if former == nil && strings.Contains(event.Query, "INSERT INTO") {
				lose() // the statement is the commit
			}
		},
		after: func(event *bun.QueryEvent) {
			if former != nil && strings.Contains(event.Query, "INSERT INTO") {
				lose() // COMMIT comes next
			}
		},
	}), names, inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	entries := []inbox.Entry{{MessageID: "1", Message: orderPlaced{1}}}
	outcomes, err := repos[1].Accept(t.Context(), entries)
	if proxy.lost.Load() != 1 {
		t.Fatalf("%d losses, want 1: %v", proxy.lost.Load(), err)
	}
	var permanent *inbox.EntryError
	switch n := rows(); {
	case err == nil && n != 1:
		t.Errorf("Accept says %v, and there are %d rows", outcomes, n)
	case err != nil && (errors.As(err, &permanent) || errors.Is(err, inbox.ErrBatchTooLarge)):
		t.Errorf("the error is a permanent one: %v", err)
	case applied && n != 1:
		t.Errorf("the server had answered, and there are %d rows", n)
	case !applied && err != nil && n != 0:
		t.Errorf("nothing arrived, and there are %d rows", n)
	}
	want := inbox.Stored
	if rows() == 1 {
		want = inbox.Duplicate
	}
	outcomes, err = repos[1].Accept(t.Context(), entries)
	if err != nil || outcomes[0].Kind != want {
		t.Errorf("the retry says %v, %v, want %v", outcomes, err, want)
	}
	if n := rows(); n != 1 {
		t.Errorf("%d rows in the end", n)
	}
}
