package wakeup

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

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
	// KeepAlive is how often a connection that hears nothing is tried, so that
	// one whose other end has vanished is noticed. Default 30 s.
	KeepAlive time.Duration
	// Backoff is the delay between tries to connect. Default 100 ms, doubled up
	// to 15 s.
	Backoff inbox.Backoff
	// BeforeConnect may change the copy of the connection settings that the next
	// connection is opened with, to set a password that expires, say. Default: none.
	BeforeConnect func(ctx context.Context, conn *pgx.ConnConfig) error
	// Logger receives outages: the first failure, and the recovery. Default: discard.
	Logger *slog.Logger
}

// Waker carries wake-ups between processes by LISTEN and NOTIFY. It is safe for
// concurrent use. It implements [inbox.Waker], whose methods the inbox calls.
type Waker struct {
	conn   *pgx.ConnConfig
	config Config
	relay  relay.Config
	sender *relay.Sender

	// own is the process id of the backend that notifies for this process, 0 if
	// there is none or a pooler hides it.
	own atomic.Uint32
}

// Open is New for a connection string, in any form that pgx takes. It does not
// connect yet. It has to lead to the server itself, or through a pooler in
// session mode. The error shows no password.
func Open(connString string, config Config) (*Waker, error) {
	conn, err := pgx.ParseConfig(connString)
	if err != nil {
		return nil, fmt.Errorf("wakeup: open: %w", err)
	}
	return New(conn, config), nil
}

// New returns a Waker that opens its connections with a copy of conn, which
// pgx.ParseConfig must have made. It does not connect yet.
func New(conn *pgx.ConnConfig, config Config) *Waker {
	conn = conn.Copy()
	// No statement is prepared, so that poolers are no matter.
	conn.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	conn.OnNotification = nil // WaitForNotification needs pgx's own
	if conn.RuntimeParams["application_name"] == "" {
		conn.RuntimeParams["application_name"] = "letterbox wakeup"
	}
	w := &Waker{conn: conn, config: config, relay: relay.Config{
		Logger: config.Logger, Interval: config.Interval, Idle: config.Idle, KeepAlive: config.KeepAlive, Backoff: config.Backoff,
	}}
	w.relay.SetDefaults()
	w.sender = relay.NewSender(w.relay, w.outlet)
	return w
}

// Notify tells other processes that messages were committed to the inbox whose
// table of messages this is. It returns at once: a goroutine sends the
// notification, on a connection of its own, and ends when there is nothing to
// send for Config.Idle.
func (w *Waker) Notify(table string) { w.sender.Notify(table) }

// Listen calls wake once it listens, after notifications of other processes and
// after every reconnection, as often as Config.Interval allows and from one
// goroutine. It blocks until ctx ends and returns nil. While it runs it holds
// one connection.
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
