package inboxtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// CommitFault is what a [Proxy] does to a COMMIT.
type CommitFault int

const (
	// LoseRequest cuts the connection before the server gets the COMMIT: it
	// is not applied, and the client cannot know.
	LoseRequest CommitFault = iota + 1
	// LoseReply cuts the connection after the server has applied the COMMIT
	// and before the client hears of it.
	LoseReply
)

// Proxy stands between a pool and a PostgreSQL server and does to the
// connections what a bad network does. It reads as much of the protocol as it
// takes to see COMMIT in a simple query, which is how pgx and bun's pgdriver
// send it: https://www.postgresql.org/docs/current/protocol-message-formats.html
// It cannot read encrypted connections: use sslmode=disable.
//
// All methods may be called at any time, from any goroutine.
type Proxy struct {
	listener net.Listener
	server   string
	delay    atomic.Int64 // of each reply
	refuse   atomic.Bool
	hole     atomic.Bool

	mu        sync.Mutex
	conns     map[net.Conn]bool // true: it has lost something to Swallow
	budget    int64             // bytes until the cut; 0: no cut
	countdown int               // COMMITs until fault
	fault     CommitFault
	commits   int
}

// NewProxy listens on a free port of the loopback interface in front of the
// server of dsn, a postgres:// URL, and returns the URL that leads through it.
// It is closed with the test.
func NewProxy(t testing.TB, dsn string) (p *Proxy, through string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal("inboxtest: proxy: not a URL") // the error would show the password
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("inboxtest: proxy: %v", err)
	}
	p = &Proxy{listener: listener, server: u.Host, conns: map[net.Conn]bool{}}
	if u.Port() == "" {
		p.server = net.JoinHostPort(u.Hostname(), "5432")
	}
	var serving sync.WaitGroup
	serving.Go(func() { p.serve(&serving) })
	t.Cleanup(func() {
		_ = listener.Close()
		p.Cut()
		serving.Wait()
	})
	u.Host = listener.Addr().String()
	return p, u.String()
}

// OnCommit has the n-th COMMIT from now, n from 1, meet with fault. Only the
// latest call counts.
func (p *Proxy) OnCommit(n int, fault CommitFault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.countdown, p.fault = n, fault
}

// Commits is how many COMMITs have come by, those that were lost included.
func (p *Proxy) Commits() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.commits
}

// Cut closes all connections in the middle of whatever they do.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		_ = conn.Close()
	}
}

// Refuse closes new connections at once, as long as it is on.
func (p *Proxy) Refuse(on bool) { p.refuse.Store(on) }

// Swallow loses everything that is sent in either direction, as long as it is on,
// the end of a connection included, and tells nobody: what a broken route or a
// machine without power looks like. New connections are taken and never
// answered. Turned off, it cuts the connections that have lost something.
func (p *Proxy) Swallow(on bool) {
	p.hole.Store(on)
	if on {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn, holed := range p.conns {
		if holed {
			_ = conn.Close()
		}
	}
}

// CutAfter cuts one connection, once, in the middle of a message if need be:
// the one that carries the n-th byte from now, n from 1, over all connections
// and both directions. Bytes up to that one arrive. Only the latest call counts;
// 0 calls it off.
func (p *Proxy) CutAfter(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.budget = int64(max(n, 0))
}

// Delay holds each piece of a reply back for that long.
func (p *Proxy) Delay(d time.Duration) { p.delay.Store(int64(d)) }

func (p *Proxy) serve(serving *sync.WaitGroup) {
	for {
		client, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		if p.refuse.Load() {
			_ = client.Close()
			continue
		}
		serving.Go(func() { p.connect(client) })
	}
}

// connect copies in both directions until one side ends.
func (p *Proxy) connect(client net.Conn) {
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		_ = client.Close()
		return
	}
	p.mu.Lock()
	p.conns[client], p.conns[server] = p.hole.Load(), p.hole.Load()
	p.mu.Unlock()
	var once sync.Once
	end := func() {
		once.Do(func() {
			_, _ = client.Close(), server.Close()
			p.mu.Lock()
			defer p.mu.Unlock()
			delete(p.conns, client)
			delete(p.conns, server)
		})
	}
	// What ends in the hole is not heard of on the other side before Swallow ends.
	hear := func() {
		if !p.lost(client, server) {
			end()
		}
	}
	var swallow atomic.Bool
	var both sync.WaitGroup
	both.Go(func() { defer hear(); _ = p.requests(p.to(server, client), client, &swallow) })
	both.Go(func() { defer hear(); _ = p.replies(p.to(client, server), server, &swallow) })
	both.Wait()
	end()
}

// lost reports that everything is being swallowed, and notes that this pair of
// connections has lost something.
func (p *Proxy) lost(pair ...net.Conn) bool {
	if !p.hole.Load() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.hole.Load() { // turned off in between: it will not look at the pair again
		return false
	}
	for _, conn := range pair {
		if _, open := p.conns[conn]; open {
			p.conns[conn] = true
		}
	}
	return true
}

// to writes to one side of a pair what came from the other, unless it is swallowed
// or the cut comes first.
func (p *Proxy) to(conn, from net.Conn) io.Writer {
	return writer(func(raw []byte) (int, error) {
		if p.lost(conn, from) {
			return len(raw), nil
		}
		allowed, cut := p.spend(len(raw))
		n, err := conn.Write(raw[:allowed])
		if err == nil && cut {
			err = io.ErrShortWrite
		}
		return n, err
	})
}

type writer func(raw []byte) (int, error)

func (w writer) Write(raw []byte) (int, error) { return w(raw) }

// spend returns how many of the bytes may pass, and whether the cut comes then.
func (p *Proxy) spend(bytes int) (allowed int, cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.budget == 0 || p.budget > int64(bytes) {
		p.budget = max(p.budget-int64(bytes), 0)
		return bytes, false
	}
	allowed = int(p.budget)
	p.budget = 0
	return allowed, true
}

// message reads one message: a type, except at the start of a connection, a
// length that counts itself, and a body.
func message(r io.Reader, typed bool) (raw []byte, err error) {
	head := make([]byte, 4, 5)
	if typed {
		head = head[:5]
	}
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint32(head[len(head)-4:])
	if length < 4 || length > 1<<30 {
		return nil, fmt.Errorf("a message of %d bytes", length)
	}
	raw = append(head, make([]byte, length-4)...)
	_, err = io.ReadFull(r, raw[len(head):])
	return raw, err
}

const protocolVersion = 3 << 16 // of a startup message; others come before it

func (p *Proxy) requests(server io.Writer, client io.Reader, swallow *atomic.Bool) error {
	for typed := false; ; {
		raw, err := message(client, typed)
		if err != nil {
			return err
		}
		if !typed && len(raw) >= 8 && binary.BigEndian.Uint32(raw[4:]) >= protocolVersion && binary.BigEndian.Uint32(raw[4:]) < protocolVersion+1<<16 {
			typed = true
		} else if typed && raw[0] == 'Q' && isCommit(raw[5:]) {
			switch p.meet() {
			case LoseRequest:
				return nil
			case LoseReply:
				swallow.Store(true)
			}
		}
		if _, err := server.Write(raw); err != nil {
			return err
		}
	}
}

func isCommit(text []byte) bool {
	return strings.EqualFold(strings.Trim(string(text), " ;\x00"), "commit")
}

// meet counts a COMMIT and returns what shall happen to it.
func (p *Proxy) meet() CommitFault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.commits++
	if p.countdown--; p.countdown == 0 {
		return p.fault
	}
	return 0
}

func (p *Proxy) replies(client io.Writer, server io.Reader, swallow *atomic.Bool) error {
	for {
		raw, err := message(server, true)
		if err != nil {
			return err
		}
		if swallow.Load() {
			if raw[0] == 'Z' { // ready for the next query: the commit is in
				return nil
			}
			continue
		}
		if d := time.Duration(p.delay.Load()); d > 0 {
			time.Sleep(d)
		}
		if _, err := client.Write(raw); err != nil {
			return err
		}
	}
}
