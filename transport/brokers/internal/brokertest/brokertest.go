// Package brokertest is what every broker has to pass, with the inbox behind it: a
// table of rules that run against a real broker and a real PostgreSQL.
package brokertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/transport/wminbox"
)

// patience bounds every wait; the machine may be busy.
const patience = 90 * time.Second

// Broker is one kind of broker, as a test needs it.
type Broker struct {
	// Open makes an empty topic on the broker at URL, and removes it after the test.
	Open func(t testing.TB) (url, topic string)
	// Subscriber connects. What is nacked, or not acked when its connection dies,
	// comes again within about a second.
	Subscriber func(url, topic string) (message.Subscriber, error)
	// Publish sends messages as a producer without Watermill does: the id where
	// such a producer puts it, if it is not empty, and the name in a header "name".
	Publish func(url, topic string, messages []Foreign) error
	// IDs finds the ids of Publish. Default: that of the handler.
	IDs []wminbox.IDExtractor
	// Skip names rules that this broker cannot show, and says why.
	Skip map[string]string
}

// Foreign is a message of a producer without Watermill.
type Foreign struct{ ID, Name, Body string }

var rules = []struct {
	name string
	rule func(*testing.T, Broker)
}{
	{"messages of a foreign producer are told apart", toldApart},
	{"a subscriber killed between COMMIT and ack loses and repeats nothing", killed},
	{"a database that is away for five seconds costs nothing and nothing spins", outage},
}

// Run runs every rule. The package's TestMain has to call Child.
func Run(t *testing.T, broker Broker) {
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			if why := broker.Skip[r.name]; why != "" {
				t.Skip(why)
			}
			r.rule(t, broker)
		})
	}
}

type order struct{}

// box is an inbox with its rejects table.
type box struct {
	db   *bun.DB
	repo *inbox.Repository
	park *wminbox.Park
}

func openBox(ctx context.Context, dsn string) (b box, err error) {
	if b.db, err = testdb.OpenPGX(dsn); err != nil {
		return b, err
	}
	names := inbox.NewNameMap()
	inbox.Register[order](names, "order")
	if b.repo, err = inbox.NewRepository(b.db, names, inbox.Config{}); err != nil {
		return b, err
	}
	if b.park, err = wminbox.NewPark(b.db, wminbox.ParkConfig{}); err != nil {
		return b, err
	}
	return b, errors.Join(b.repo.Migrate(ctx), b.park.Migrate(ctx))
}

func mustOpenBox(t testing.TB, dsn string) box {
	t.Helper()
	b, err := openBox(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.db.Close() })
	return b
}

// counts says how many messages are stored and how many are parked.
func (b box) counts(t testing.TB) (messages, rejects int) {
	t.Helper()
	err := b.db.NewRaw(`SELECT (SELECT count(*) FROM inbox_messages), (SELECT count(*) FROM inbox_rejects)`).
		Scan(context.Background(), &messages, &rejects)
	if err != nil {
		t.Fatal(err)
	}
	return messages, rejects
}

// tally counts what became of deliveries.
type tally struct{ stored, duplicates, mismatches, rejected, nacked atomic.Int64 }

func (c *tally) Accepted(_ context.Context, outcome inbox.Outcome) {
	switch outcome.Kind {
	case inbox.Stored:
		c.stored.Add(1)
	case inbox.Duplicate:
		c.duplicates.Add(1)
	case inbox.Mismatch:
		c.mismatches.Add(1)
	}
}

func (c *tally) Rejected(context.Context, *wminbox.RejectError) { c.rejected.Add(1) }
func (c *tally) Nacked(context.Context, error)                  { c.nacked.Add(1) }

// settled is how many deliveries were acked.
func (c *tally) settled() int {
	return int(c.stored.Load() + c.duplicates.Load() + c.mismatches.Load() + c.rejected.Load())
}

// consume runs a router in front of the inbox. After the handler returned nil and
// before the ack, beforeAck runs, if it is not nil.
func consume(broker Broker, url, topic string, b box, seen wminbox.Observer, beforeAck func()) (stop func() error, err error) {
	subscriber, err := broker.Subscriber(url, topic)
	if err != nil {
		return nil, err
	}
	handle, err := wminbox.NewHandler(b.repo, wminbox.Config{IDs: broker.IDs, Source: "foreign", Reject: b.park, Observer: seen})
	if err != nil {
		return nil, err
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: patience}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	router.AddConsumerHandler("inbox", topic, subscriber, func(msg *message.Message) error {
		err := handle(msg)
		if err == nil && beforeAck != nil {
			beforeAck()
		}
		return err
	})
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { done <- router.Run(ctx) }()
	select {
	case <-router.Running():
	case err := <-done:
		cancel()
		return nil, fmt.Errorf("run the router: %w", err)
	}
	return func() error {
		defer cancel()
		return errors.Join(router.Close(), <-done)
	}, nil
}

func mustConsume(t testing.TB, broker Broker, url, topic string, b box, seen wminbox.Observer) {
	t.Helper()
	stop, err := consume(broker, url, topic, b, seen, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("stop the subscriber: %v", err)
		}
	})
}

func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// UniqueTopic returns a name that nobody else uses.
func UniqueTopic() string {
	return fmt.Sprintf("letterbox-test-%d-%s", os.Getpid(), watermill.NewShortUUID())
}
