package pgdriverwake

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/driver/pgdriver"

	"github.com/letterbox-go/letterbox/wakeup/internal/relay"
)

// listener is one call of Listen.
type listener struct {
	*Waker
	table    string
	verified bool // notifications have arrived
}

// session listens on one connection until that is lost. pgdriver's listener
// would reconnect by itself, and say so to nobody; its second dial is refused.
func (l *listener) session(ctx context.Context, up, heard func()) error {
	db := l.pool()
	defer db.Close()
	setUp, cancel := context.WithTimeout(ctx, relay.StepTimeout)
	defer cancel()
	channel, err := resolve(setUp, db, l.table)
	if err != nil {
		return err
	}

	conf := l.conn
	sockets := sockets{once: true}
	conf.Dialer = sockets.dialer(l.conn.Dialer)
	defer context.AfterFunc(ctx, sockets.close)()
	defer sockets.close()
	listening := bun.NewDB(sql.OpenDB(pgdriver.NewConnector(pgdriver.WithConfig(&conf))), pgdialect.New())
	defer listening.Close()
	ln := pgdriver.NewListener(listening)
	defer ln.Close()
	probe := relay.ProbeChannel()
	if err := ln.Listen(setUp, channel, probe); err != nil {
		return err
	}

	ctx, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	group.Go(func() { l.keepAlive(ctx, db, probe) })
	if err := l.confirm(ctx, ln, probe); err != nil {
		return err
	}
	up()
	for heard(); ; {
		name, _, err := ln.ReceiveTimeout(ctx, l.relay.KeepAlive+relay.ProbeTimeout)
		if err != nil {
			return err
		}
		if name != probe {
			heard()
		}
	}
}

// confirm waits for the first notification to ourselves: it shows that LISTEN is
// in effect, whose reply pgdriver does not wait for, and that notifications
// arrive.
func (l *listener) confirm(ctx context.Context, ln *pgdriver.Listener, probe string) error {
	for {
		name, _, err := ln.ReceiveTimeout(ctx, relay.ProbeTimeout)
		switch {
		case timedOut(err) && !l.verified:
			return relay.ErrSwallowed
		case err != nil:
			return err
		case name == probe:
			l.verified = true
			return nil
		}
	}
}

// keepAlive sends notifications to ourselves, the first ones in short succession:
// LISTEN may not be in effect yet. Whatever keeps them from arriving is for the
// listener to notice.
func (l *listener) keepAlive(ctx context.Context, db *sql.DB, probe string) {
	for pause := 5 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, l.relay.KeepAlive) {
		_ = notify(ctx, db, probe)
		relay.Sleep(ctx, pause)
	}
}

func notify(ctx context.Context, db *sql.DB, channel string) error {
	ctx, cancel := context.WithTimeout(ctx, relay.ProbeTimeout)
	defer cancel()
	_, err := db.ExecContext(ctx, relay.Notification(channel))
	return err
}

func timedOut(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout()
}
