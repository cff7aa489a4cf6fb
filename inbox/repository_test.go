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

// lossy is a TCP proxy that loses one piece of traffic, and the connection with
// it: the first one in which a client sends trigger, or the server's reply to it.
type lossy struct {
	listener net.Listener
	server   string
	trigger  string // in lower case
	reply    bool   // lose the reply instead of the request
	lost     atomic.Int32
	serving  sync.WaitGroup
}

func newLossy(t *testing.T, dsn, trigger string, reply bool) (l *lossy, through string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	l = &lossy{server: u.Host, trigger: trigger, reply: reply}
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
		var triggered atomic.Bool
		l.serving.Go(func() {
			l.copy(server, client, func(piece []byte) bool {
				if !strings.Contains(strings.ToLower(string(piece)), l.trigger) || !l.lost.CompareAndSwap(0, 1) {
					return false
				}
				triggered.Store(true)
				return !l.reply
			})
		})
		l.serving.Go(func() {
			l.copy(client, server, func([]byte) bool { return triggered.Load() })
		})
	}
}

// copy hands pieces on until one is to be lost.
func (l *lossy) copy(to, from net.Conn, lose func(piece []byte) bool) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil || lose(buffer[:n]) {
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
	trigger := "insert into" // one statement is its own commit
	if former != nil {
		trigger = "commit\x00" // as a simple query ends; BEGIN says READ COMMITTED
	}
	proxy, through := newLossy(t, dsn, trigger, applied)
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

	entries := []inbox.Entry{{MessageID: "1", Message: orderPlaced{1}}}
	outcomes, err := repos[1].Accept(t.Context(), entries)
	if proxy.lost.Load() != 1 {
		t.Fatalf("%d losses, want 1: %v", proxy.lost.Load(), err)
	}
	var permanent *inbox.EntryError
	switch n := rows(); {
	case err == nil && n != 1:
		t.Errorf("Accept says %v, and there are %d rows", outcomes, n)
	case err == nil && applied && outcomes[0].Kind != inbox.Duplicate:
		t.Errorf("Accept says %v of what it had stored before", outcomes)
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
