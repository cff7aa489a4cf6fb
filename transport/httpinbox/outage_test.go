package httpinbox_test

import (
	"bytes"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/transport/httpinbox"
)

// proxy stands between a pool and PostgreSQL, and can lose replies.
type proxy struct {
	listener net.Listener
	server   string
	trigger  atomic.Pointer[string] // the statement whose reply gets lost, once
	down     atomic.Bool
	silent   atomic.Bool // lose it without closing the connection
	lost     atomic.Int64

	mu    sync.Mutex
	conns map[net.Conn]bool
}

func startProxy(t *testing.T, dsn string) (p *proxy, proxied string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	p = &proxy{server: u.Host, conns: map[net.Conn]bool{}}
	if p.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	u.Host = p.listener.Addr().String()
	query := u.Query()
	query.Set("sslmode", "disable")
	u.RawQuery = query.Encode()
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := p.listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { p.serve(client) })
		}
	})
	t.Cleanup(func() {
		p.listener.Close()
		p.stop()
		running.Wait()
	})
	return p, u.String()
}

// loseReply loses the reply to the next statement that holds text, after the
// server has executed it.
func (p *proxy) loseReply(text string) { p.trigger.Store(&text) }

// stop ends all connections and refuses new ones.
func (p *proxy) stop() {
	p.down.Store(true)
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		conn.Close()
	}
}

func (p *proxy) start() { p.down.Store(false) }

func (p *proxy) track(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[conn] = true
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	if p.down.Load() {
		return
	}
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer server.Close()
	p.track(client)
	p.track(server)
	var losing atomic.Bool
	go func() {
		defer server.Close()
		buffer := make([]byte, 64<<10)
		for {
			n, err := client.Read(buffer)
			if err != nil {
				return
			}
			if text := p.trigger.Load(); text != nil && bytes.Contains(buffer[:n], []byte(*text)) && p.trigger.CompareAndSwap(text, nil) {
				losing.Store(true)
			}
			if _, err := server.Write(buffer[:n]); err != nil {
				return
			}
		}
	}()
	buffer := make([]byte, 64<<10)
	var reply []byte
	for {
		n, err := server.Read(buffer)
		if err != nil {
			return
		}
		if !losing.Load() {
			if _, err := client.Write(buffer[:n]); err != nil {
				return
			}
			continue
		}
		reply = append(reply, buffer[:n]...)
		// ReadyForQuery, idle: executed and committed.
		if bytes.HasSuffix(reply, []byte("Z\x00\x00\x00\x05I")) {
			p.lost.Add(1)
			if !p.silent.Load() {
				return
			}
			reply = nil
		}
	}
}

func TestLostRepliesAndOutages(t *testing.T) {
	t.Parallel()
	dsn := testdb.Postgres(t)
	direct, err := testdb.OpenPGX(dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { direct.Close() })
	proxy, proxied := startProxy(t, dsn)
	db, err := testdb.OpenPGX(proxied)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	e := newEnv(t, db)
	route(t, e, "/credits", httpinbox.Config[Credit]{
		Identify: httpinbox.IdempotencyKey(), RetryAfter: 2500 * time.Millisecond, AcceptTimeout: 2 * time.Second,
	})
	route(t, e, "/renamed", httpinbox.Config[Renamed]{Identify: httpinbox.IdempotencyKey()})
	status, err := httpinbox.NewStatus(e.repo, httpinbox.StatusConfig{Name: "credit"})
	if err != nil {
		t.Fatal(err)
	}
	e.mux.Handle("/credits/{id}", status)

	unavailable := func(t *testing.T, r reply) {
		t.Helper()
		r.expect(t, http.StatusServiceUnavailable, "unavailable")
		if got := r.Header.Get("Retry-After"); got == "" {
			t.Error("no Retry-After")
		}
	}
	count := func(t *testing.T, id string) (n int) {
		t.Helper()
		for _, row := range rowsOf(t, direct) {
			if row.MessageID == id {
				n++
			}
		}
		return n
	}

	for _, test := range []struct {
		name, path, body, statement string
		silent                      bool
	}{
		{"one statement is the transaction, and the connection breaks", "/credits", good, `INSERT INTO "inbox_messages"`, false},
		{"one statement is the transaction, and nothing comes back", "/credits", good, `INSERT INTO "inbox_messages"`, true},
		{"COMMIT is a statement of its own", "/renamed", `{"note":"x"}`, "commit\x00", false},
	} {
		t.Run("The reply is lost after the commit: "+test.name, func(t *testing.T) {
			key := "Idempotency-Key: " + strings.NewReplacer(" ", "-", ",", "").Replace(test.name)
			id := strings.TrimPrefix(key, "Idempotency-Key: ")
			before := proxy.lost.Load()
			proxy.silent.Store(test.silent)
			proxy.loseReply(test.statement)
			unavailable(t, e.post(t, test.path, test.body, key))
			if proxy.lost.Load() != before+1 {
				t.Fatal("no reply was lost")
			}
			if n := count(t, id); n != 1 {
				t.Fatalf("%d rows after the lost reply", n)
			}
			e.post(t, test.path, test.body, key).expectOutcome(t, inbox.Duplicate)
			if n := count(t, id); n != 1 {
				t.Errorf("%d rows after the repeat", n)
			}
		})
	}

	t.Run("While the database is away senders are told to come back", func(t *testing.T) {
		proxy.stop()
		const requests = 50
		for range requests {
			r := e.post(t, "/credits", good, "Idempotency-Key: away")
			unavailable(t, r)
			if got := r.Header.Get("Retry-After"); got != "3" {
				t.Errorf("Retry-After %q, want 2.5 s rounded up", got)
			}
		}
		r, err := http.NewRequest(http.MethodGet, e.server.URL+"/credits/away", nil)
		if err != nil {
			t.Fatal(err)
		}
		unavailable(t, e.do(t, r))
		if lines := strings.Count(e.log.String(), "the inbox fails"); lines < 1 || lines > 5 {
			t.Errorf("%d lines of log for %d requests", lines, requests)
		}
		if n := count(t, "away"); n != 0 {
			t.Fatalf("%d rows", n)
		}
		proxy.start()
		e.post(t, "/credits", good, "Idempotency-Key: away").expectOutcome(t, inbox.Stored)
	})

	t.Run("A log of outages holds no payload", func(t *testing.T) {
		if log := e.log.String(); strings.Contains(log, "alice") || strings.Contains(log, "INSERT") {
			t.Error(log)
		}
	})
}

func TestTablesThatAreMissingAreAnOutageToo(t *testing.T) {
	t.Parallel()
	e := newEnvUnmigrated(t, testdb.SQLite(t))
	route(t, e, "/credits", httpinbox.Config[Credit]{Identify: httpinbox.IdempotencyKey()})
	r := e.post(t, "/credits", good, "Idempotency-Key: k")
	r.expect(t, http.StatusServiceUnavailable, "unavailable")
	if got := r.Header.Get("Retry-After"); got != "5" {
		t.Errorf("Retry-After %q", got)
	}
}
