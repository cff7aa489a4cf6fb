package wakeup

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/letterbox-go/letterbox/wakeup/internal/relay"
)

// connect opens a connection.
func (w *Waker) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, relay.StepTimeout)
	defer cancel()
	conn := w.conn.Copy()
	if w.config.BeforeConnect != nil {
		if err := w.config.BeforeConnect(ctx, conn); err != nil {
			return nil, fmt.Errorf("before connect: %w", err)
		}
	}
	return pgx.ConnectConfig(ctx, conn)
}

// hangUp closes a connection, politely if that is possible.
func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// resolve returns the channel of the inbox whose table of messages this is, and
// the process id of the backend that answered.
func resolve(ctx context.Context, conn *pgx.Conn, table string) (channel string, backend uint32, err error) {
	var schema, name string
	query := fmt.Sprintf(relay.ResolveTable, strings.ReplaceAll(table, "'", "''"))
	err = conn.QueryRow(ctx, query).Scan(&schema, &name, &backend)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", 0, fmt.Errorf("%s: %w", table, relay.ErrNoTable)
	}
	if err != nil {
		return "", 0, err
	}
	return relay.Channel(schema, name), backend, nil
}

// outlet is a connection that notifications are sent on. It is not the one that
// listens, since a connection that waits cannot send, and since processes that
// only accept need not listen; and it is not of the pool, since accepts may need
// all of that.
type outlet struct {
	*Waker
	conn     *pgx.Conn
	channels map[string]string // by table
}

func (w *Waker) outlet(ctx context.Context) (relay.Outlet, error) {
	conn, err := w.connect(ctx)
	if err != nil {
		return nil, err
	}
	return &outlet{w, conn, map[string]string{}}, nil
}

// Send is one message to the server.
func (o *outlet) Send(ctx context.Context, tables []string) (err error) {
	channels := make([]string, len(tables))
	for i, table := range tables {
		if channels[i], err = o.channel(ctx, table); err != nil {
			return err
		}
	}
	_, err = o.conn.Exec(ctx, relay.Notification(channels...))
	return err
}

func (o *outlet) channel(ctx context.Context, table string) (string, error) {
	if channel, ok := o.channels[table]; ok {
		return channel, nil
	}
	channel, backend, err := resolve(ctx, o.conn, table)
	if err != nil {
		return "", err
	}
	// Behind a pooler the two differ, and others may share the backend.
	if backend == o.conn.PgConn().PID() {
		o.own.Store(backend)
	}
	o.channels[table] = channel
	return channel, nil
}

func (o *outlet) Close() {
	// Another process may be given the number.
	o.own.CompareAndSwap(o.conn.PgConn().PID(), 0)
	hangUp(o.conn)
}
