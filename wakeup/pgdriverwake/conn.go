package pgdriverwake

import (
	"context"
	"database/sql/driver"
	"errors"
	"net"
	"sync"

	"github.com/uptrace/bun/driver/pgdriver"
)

// connector closes what pgdriver leaves open: the socket of a connection that
// the server takes and then refuses. And it minds the end of a context, which
// pgdriver does not while it reads.
type connector struct {
	conf *pgdriver.Config
}

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	conf := *c.conf
	var sockets sockets
	conf.Dialer = sockets.dialer(c.conf.Dialer)
	stop := context.AfterFunc(ctx, sockets.close)
	defer stop()
	conn, err := pgdriver.NewConnector(pgdriver.WithConfig(&conf)).Connect(ctx)
	if err != nil {
		sockets.close()
		return nil, err
	}
	return conn, nil
}

func (c connector) Driver() driver.Driver { return pgdriver.Driver{} }

var errClosed = errors.New("pgdriverwake: the connection is closed")

// sockets are those that a dialer has opened.
type sockets struct {
	mu     sync.Mutex
	open   []net.Conn
	once   bool // only one may be opened
	closed bool
}

type dial = func(ctx context.Context, network, address string) (net.Conn, error)

func (s *sockets) dialer(dial dial) dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		s.mu.Lock()
		refuse := s.closed || s.once && len(s.open) > 0
		s.mu.Unlock()
		if refuse {
			return nil, errClosed
		}
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.closed {
			_ = conn.Close()
			return nil, errClosed
		}
		s.open = append(s.open, conn)
		return conn, nil
	}
}

func (s *sockets) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, conn := range s.open {
		_ = conn.Close()
	}
}
