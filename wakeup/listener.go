package wakeup

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/letterbox-go/letterbox/wakeup/internal/relay"
)

// listener is one call of Listen.
type listener struct {
	*Waker
	table    string
	verified bool // notifications arrive
}

// session listens on one connection until that is lost.
func (l *listener) session(ctx context.Context, up, heard func()) error {
	conn, err := l.connect(ctx)
	if err != nil {
		return err
	}
	defer hangUp(conn)
	if err := l.listen(ctx, conn); err != nil {
		return err
	}
	up()
	if !l.verified {
		if err := l.probe(ctx, conn, heard); err != nil {
			return err
		}
		l.verified = true
	}
	for {
		switch n, err := l.next(ctx, conn); {
		case err != nil:
			return err
		case n == nil: // silence
			if err := l.ping(ctx, conn); err != nil {
				return err
			}
		case n.PID != 0 && n.PID == l.own.Load():
			// Its processors were told by the repository itself.
		default:
			heard()
		}
	}
}

func (l *listener) listen(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, relay.StepTimeout)
	defer cancel()
	channel, _, err := resolve(ctx, conn, l.table)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "LISTEN "+relay.Quote(channel))
	return err
}

// next returns the next notification, or nil after Config.KeepAlive.
func (l *listener) next(ctx context.Context, conn *pgx.Conn) (*pgconn.Notification, error) {
	wait, cancel := context.WithTimeout(ctx, l.relay.KeepAlive)
	defer cancel()
	n, err := conn.WaitForNotification(wait)
	switch {
	case n != nil:
		return n, nil
	case wait.Err() != nil && ctx.Err() == nil && !conn.IsClosed():
		return nil, nil
	}
	return nil, err
}

func (l *listener) ping(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, min(l.relay.KeepAlive, relay.StepTimeout))
	defer cancel()
	return conn.Ping(ctx)
}

// probe finds out whether notifications arrive. It sends one from another
// connection, while this one only waits: a pooler might bring one back together
// with the reply to a statement, and no others.
func (l *listener) probe(ctx context.Context, conn *pgx.Conn, heard func()) error {
	ctx, cancel := context.WithTimeout(ctx, relay.StepTimeout)
	defer cancel()
	channel := relay.ProbeChannel()
	if _, err := conn.Exec(ctx, "LISTEN "+relay.Quote(channel)); err != nil {
		return err
	}
	if err := l.notify(ctx, channel); err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, relay.ProbeTimeout)
	defer cancel()
	for arrived := false; !arrived; {
		n, err := conn.WaitForNotification(wait)
		if n == nil {
			if wait.Err() != nil && ctx.Err() == nil && !conn.IsClosed() {
				return relay.ErrSwallowed
			}
			return err
		}
		arrived = n.Channel == channel
		heard()
	}
	_, err := conn.Exec(ctx, "UNLISTEN "+relay.Quote(channel))
	return err
}

// notify sends one notification on a connection of its own.
func (l *listener) notify(ctx context.Context, channel string) error {
	conn, err := l.connect(ctx)
	if err != nil {
		return err
	}
	defer hangUp(conn)
	_, err = conn.Exec(ctx, relay.Notification(channel))
	return err
}
