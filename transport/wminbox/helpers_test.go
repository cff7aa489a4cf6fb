package wminbox_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/transport/wminbox"
)

const patience = 20 * time.Second

type order struct {
	Number string `json:"number"`
}

func orderNames() *inbox.NameMap {
	names := inbox.NewNameMap()
	inbox.Register[order](names, "order")
	return names
}

// box is an inbox with its rejects table.
type box struct {
	db   *bun.DB
	repo *inbox.Repository
	park *wminbox.Park
}

func openBox(t testing.TB, db *bun.DB) box {
	t.Helper()
	repo, err := inbox.NewRepository(db, orderNames(), inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	park, err := wminbox.NewPark(db, wminbox.ParkConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(repo.Migrate(t.Context()), park.Migrate(t.Context())); err != nil {
		t.Fatal(err)
	}
	return box{db, repo, park}
}

// onBothDatabases runs body with an inbox on PostgreSQL and one on SQLite.
func onBothDatabases(t *testing.T, body func(t *testing.T, b box)) {
	t.Parallel()
	for name, open := range map[string]func(testing.TB) *bun.DB{"PostgreSQL": testdb.PGX, "SQLite": testdb.SQLite} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body(t, openBox(t, open(t)))
		})
	}
}

func (b box) count(t testing.TB, table string) (n int) {
	t.Helper()
	if err := b.db.NewSelect().TableExpr(table).ColumnExpr("count(*)").Scan(context.Background(), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

type stored struct {
	Source    string
	MessageID string
	Name      string
	Payload   []byte
	Metadata  string
}

func (b box) stored(t testing.TB) (rows []stored) {
	t.Helper()
	err := b.db.NewRaw(`SELECT source, message_id, name, payload, metadata FROM inbox_messages ORDER BY id`).Scan(context.Background(), &rows)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

type parked struct {
	Topic      string
	Handler    string
	Reason     string
	Detail     string
	UUID       []byte
	Payload    []byte
	Metadata   []byte
	Deliveries int
}

func (b box) parked(t testing.TB) (rows []parked) {
	t.Helper()
	err := b.db.NewRaw(`SELECT topic, handler, reason, detail, uuid, payload, metadata, deliveries FROM inbox_rejects ORDER BY id`).Scan(context.Background(), &rows)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// feed is a subscriber whose messages a test makes itself.
type feed chan *message.Message

func (f feed) Subscribe(context.Context, string) (<-chan *message.Message, error) { return f, nil }
func (f feed) Close() error                                                       { return nil }

// route runs a real router with the handler, until the test ends.
func route(t testing.TB, handle message.NoPublishHandlerFunc) feed {
	t.Helper()
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: patience}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	f := make(feed)
	router.AddConsumerHandler("inbox", "orders", f, handle)
	done := make(chan error, 1)
	go func() { done <- router.Run(context.Background()) }()
	<-router.Running()
	t.Cleanup(func() {
		close(f)
		if err := errors.Join(router.Close(), <-done); err != nil {
			t.Error(err)
		}
	})
	return f
}

type settled string

const (
	acked   settled = "acked"
	nacked  settled = "nacked"
	neither settled = "neither acked nor nacked"
)

// deliver sends one message and waits for its fate.
func (f feed) deliver(msg *message.Message) settled {
	f <- msg
	select {
	case <-msg.Acked():
		return acked
	case <-msg.Nacked():
		return nacked
	case <-time.After(patience):
		return neither
	}
}

// untilAcked redelivers a nacked message at once, as most brokers do.
func (f feed) untilAcked(msg *message.Message) (nacks int) {
	for f.deliver(msg) != acked {
		nacks++
		msg = msg.Copy()
	}
	return nacks
}

func newMessage(uuid, payload string, metadata ...string) *message.Message {
	msg := message.NewMessage(uuid, []byte(payload))
	for i := 0; i+1 < len(metadata); i += 2 {
		msg.Metadata.Set(metadata[i], metadata[i+1])
	}
	return msg
}

func handlerFor(t testing.TB, accepter wminbox.Accepter, config wminbox.Config) message.NoPublishHandlerFunc {
	t.Helper()
	handle, err := wminbox.NewHandler(accepter, config)
	if err != nil {
		t.Fatal(err)
	}
	return handle
}

// accepter is a function as Accepter.
type accepter func(ctx context.Context, entry inbox.Entry) (inbox.OutcomeKind, error)

func (a accepter) Accept(ctx context.Context, entries []inbox.Entry) ([]inbox.Outcome, error) {
	outcomes := make([]inbox.Outcome, len(entries))
	for i, entry := range entries {
		kind, err := a(ctx, entry)
		if err != nil {
			return nil, err
		}
		outcomes[i].Kind = kind
	}
	return outcomes, nil
}

var storeNothing accepter = func(context.Context, inbox.Entry) (inbox.OutcomeKind, error) { return inbox.Stored, nil }

// record is an Observer that remembers.
type record struct {
	mu       sync.Mutex
	outcomes []inbox.OutcomeKind
	reasons  []wminbox.Reason
	nacks    []error
}

func (r *record) Accepted(_ context.Context, outcome inbox.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outcomes = append(r.outcomes, outcome.Kind)
}

func (r *record) Rejected(_ context.Context, reason *wminbox.RejectError) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reasons = append(r.reasons, reason.Reason)
}

func (r *record) Nacked(_ context.Context, cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.nacks = append(r.nacks, cause)
}

func (r *record) nacked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.nacks)
}
