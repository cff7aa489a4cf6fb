package pgdriverwake

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/uptrace/bun/driver/pgdriver"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/wakeup/internal/relay"
)

var _ inbox.Waker = (*Waker)(nil)

// Config holds the settings of a Waker. The zero value is ready to use.
type Config struct {
	// Interval is the time between two notifications of this process, and between
	// two wake-ups of a processor, while five commits or more share one. Of fewer
	// each counts for a fifth of it: while little comes, nothing waits long.
	// Default 5 ms.
	Interval time.Duration
	// Idle is how long the connection that notifies stays open unused. Default 1 min.
	Idle time.Duration
	// KeepAlive is how often the connection that listens is tried. Default 30 s.
	KeepAlive time.Duration
	// Backoff is the delay between tries to connect. Default 100 ms, doubled up
	// to 15 s.
	Backoff inbox.Backoff
	// Logger receives outages: the first failure, and the recovery. Default: discard.
	Logger *slog.Logger
}

// Waker carries wake-ups between processes by LISTEN and NOTIFY. It is safe for
// concurrent use. It implements [inbox.Waker], whose methods the inbox calls.
type Waker struct {
	conn   pgdriver.Config
	relay  relay.Config
	sender *relay.Sender
}

// New returns a Waker that opens its connections with the settings of connector.
// It does not connect yet. It has to lead to the server itself, or through a
// pooler in session mode.
func New(connector *pgdriver.Connector, config Config) *Waker {
	w := &Waker{conn: *connector.Config(), relay: relay.Config{
		Logger: config.Logger, Interval: config.Interval, Idle: config.Idle, KeepAlive: config.KeepAlive, Backoff: config.Backoff,
	}}
	if w.conn.AppName == "" {
		w.conn.AppName = "letterbox wakeup"
	}
	w.relay.SetDefaults()
	w.sender = relay.NewSender(w.relay, func(context.Context) (relay.Outlet, error) {
		return &outlet{w.pool(), map[string]string{}}, nil
	})
	return w
}

// Notify tells other processes that messages were committed to the inbox whose
// table of messages this is. It returns at once: a goroutine sends the
// notification, on a connection of its own, and ends when there is nothing to
// send for Config.Idle.
func (w *Waker) Notify(table string) { w.sender.Notify(table) }

// Listen calls wake once it listens, after notifications and after every
// reconnection, as often as Config.Interval allows and from one goroutine. It
// blocks until ctx ends and returns nil. While it runs it holds one connection.
func (w *Waker) Listen(ctx context.Context, table string, wake func()) error {
	l := listener{Waker: w, table: table}
	relay.Listen(ctx, w.relay, l.session, wake)
	return nil
}

// Close sends the notification that is due, if that takes no longer than two
// seconds, and closes the connection that notifies. Later calls of Notify do
// nothing. A Listen that runs goes on until its context ends. Close returns nil.
func (w *Waker) Close() error {
	w.sender.Close()
	return nil
}

// pool returns a pool of one connection: database/sql discards what is broken.
func (w *Waker) pool() *sql.DB {
	conn := w.conn
	db := sql.OpenDB(connector{&conn})
	db.SetMaxOpenConns(1)
	return db
}

// resolve returns the channel of the inbox whose table of messages this is.
func resolve(ctx context.Context, db *sql.DB, table string) (string, error) {
	var schema, name string
	var backend int64
	query := fmt.Sprintf(relay.ResolveTable, strings.ReplaceAll(table, "'", "''"))
	err := db.QueryRowContext(ctx, query).Scan(&schema, &name, &backend)
	if errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("%s: %w", table, relay.ErrNoTable)
	}
	if err != nil {
		return "", err
	}
	return relay.Channel(schema, name), nil
}

// outlet is a connection that notifications are sent on.
type outlet struct {
	db       *sql.DB
	channels map[string]string // by table
}

// Send is one message to the server.
func (o *outlet) Send(ctx context.Context, tables []string) (err error) {
	channels := make([]string, len(tables))
	for i, table := range tables {
		channel, ok := o.channels[table]
		if !ok {
			if channel, err = resolve(ctx, o.db, table); err != nil {
				return err
			}
			o.channels[table] = channel
		}
		channels[i] = channel
	}
	_, err = o.db.ExecContext(ctx, relay.Notification(channels...))
	return err
}

func (o *outlet) Close() { _ = o.db.Close() }
