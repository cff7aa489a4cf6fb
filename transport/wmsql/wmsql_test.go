package wmsql_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/transport/wminbox"
	"github.com/letterbox-go/letterbox/transport/wmsql"
)

const patience = 60 * time.Second

type order struct{}

// stage is a topic and an inbox in one database.
type stage struct {
	db   *bun.DB
	repo *inbox.Repository
	seen tally

	ackDeadline *time.Duration // nil: watermill-sql's 30 s
}

type tally struct{ stored, duplicates, rejected, nacked atomic.Int64 }

func (c *tally) Accepted(_ context.Context, outcome inbox.Outcome) {
	if outcome.Kind == inbox.Stored {
		c.stored.Add(1)
	} else {
		c.duplicates.Add(1)
	}
}
func (c *tally) Rejected(context.Context, *wminbox.RejectError) { c.rejected.Add(1) }
func (c *tally) Nacked(context.Context, error)                  { c.nacked.Add(1) }

func open(t testing.TB, dsn string) *stage {
	t.Helper()
	db, err := testdb.OpenPGX(dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	names := inbox.NewNameMap()
	inbox.Register[order](names, "order")
	repo, err := inbox.NewRepository(db, names, inbox.Config{})
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
	return &stage{db: db, repo: repo}
}

var schema = wmsql.Schema{DefaultPostgreSQLSchema: watermillsql.DefaultPostgreSQLSchema{GeneratePayloadType: func(string) string { return "BYTEA" }}}

// publish sends ids in one statement, so that they are read as one batch.
func (s *stage) publish(t testing.TB, ids ...string) {
	t.Helper()
	publisher, err := watermillsql.NewPublisher(s.db.DB, watermillsql.PublisherConfig{SchemaAdapter: schema, AutoInitializeSchema: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var messages []*message.Message
	for _, id := range ids {
		msg := message.NewMessage(id, []byte("{}"))
		msg.Metadata.Set("name", "order")
		messages = append(messages, msg)
	}
	if err := publisher.Publish("orders", messages...); err != nil {
		t.Fatal(err)
	}
}

func (s *stage) subscriber(t testing.TB) *watermillsql.Subscriber {
	t.Helper()
	subscriber, err := watermillsql.NewSubscriber(s.db.DB, watermillsql.SubscriberConfig{
		SchemaAdapter: schema, OffsetsAdapter: watermillsql.DefaultPostgreSQLOffsetsAdapter{}, InitializeSchema: true,
		AckDeadline:  s.ackDeadline,
		PollInterval: 20 * time.Millisecond, RetryInterval: 200 * time.Millisecond, ResendInterval: 20 * time.Millisecond,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return subscriber
}

// run runs a router with the handler, and middleware around it, until the test ends
// or stop is called.
func (s *stage) run(t testing.TB, config wminbox.Config, middleware ...message.HandlerMiddleware) (stop func()) {
	t.Helper()
	config.Observer = &s.seen
	if config.Reject == nil {
		config.DB = s.db
	}
	handle, err := wmsql.NewHandler(s.repo, config)
	if err != nil {
		t.Fatal(err)
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: patience}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	router.AddConsumerHandler("inbox", "orders", s.subscriber(t), handle).AddMiddleware(middleware...)
	done := make(chan error, 1)
	go func() { done <- router.Run(context.Background()) }()
	<-router.Running()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			if err := errors.Join(router.Close(), <-done); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(stop)
	return stop
}

func (s *stage) ids(t testing.TB) (ids []string) {
	t.Helper()
	if err := s.db.NewRaw(`SELECT message_id FROM inbox_messages ORDER BY message_id`).Scan(context.Background(), &ids); err != nil {
		t.Fatal(err)
	}
	return ids
}

// acked is how many messages the offset has passed.
func (s *stage) acked(t testing.TB) (n int) {
	t.Helper()
	err := s.db.NewRaw(`SELECT count(*) FROM watermill_orders m, watermill_offsets_orders o
		WHERE (m.transaction_id, m."offset") <= (o.last_processed_transaction_id, o.offset_acked)`).Scan(context.Background(), &n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (s *stage) eventuallyAcked(t testing.TB, n int) {
	t.Helper()
	for deadline := time.Now().Add(patience); s.acked(t) < n; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d messages are acked, want %d", s.acked(t), n)
		}
	}
}

// once is middleware that calls trouble at the first delivery of the id.
func once(id string, trouble func(msg *message.Message, next message.HandlerFunc) error) message.HandlerMiddleware {
	var done atomic.Bool
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			if msg.UUID == id && done.CompareAndSwap(false, true) {
				return nil, trouble(msg, next)
			}
			return next(msg)
		}
	}
}

func TestABatchCommitsWithItsOffset(t *testing.T) {
	t.Parallel()
	s := open(t, testdb.Postgres(t))
	s.publish(t, "a", "b", "", "a", "c")
	s.run(t, wminbox.Config{})
	s.eventuallyAcked(t, 5)
	if diff := cmp.Diff([]string{"a", "b", "c"}, s.ids(t)); diff != "" {
		t.Error(diff)
	}
	var parked int
	if err := s.db.NewRaw(`SELECT count(*) FROM inbox_rejects`).Scan(t.Context(), &parked); err != nil || parked != 1 {
		t.Errorf("%d parked, %v", parked, err)
	}
	if s.seen.nacked.Load() != 0 {
		t.Errorf("%d nacks", s.seen.nacked.Load())
	}
}

func TestNothingIsVisibleBeforeTheOffsetMoves(t *testing.T) {
	t.Parallel()
	s := open(t, testdb.Postgres(t))
	s.publish(t, "a", "b")
	s.run(t, wminbox.Config{}, once("b", func(msg *message.Message, next message.HandlerFunc) error {
		if ids := s.ids(t); len(ids) != 0 { // on another connection
			t.Errorf("%v is visible while the batch is under way", ids)
		}
		_, err := next(msg)
		return err
	}))
	s.eventuallyAcked(t, 2)
}

func TestADuplicateNewerThanTheSnapshotEndsTheTransaction(t *testing.T) {
	t.Parallel()
	s := open(t, testdb.Postgres(t))
	s.publish(t, "a", "b", "c")
	start := time.Now()
	s.run(t, wminbox.Config{}, once("b", func(msg *message.Message, next message.HandlerFunc) error {
		entry := inbox.Entry{MessageID: "b", Message: inbox.Raw{Name: "order", Payload: []byte("{}")}}
		if _, err := s.repo.Accept(context.Background(), []inbox.Entry{entry}); err != nil {
			t.Error(err)
		}
		_, err := next(msg) // 40001: the snapshot is older
		return err
	}))
	s.eventuallyAcked(t, 3)
	if diff := cmp.Diff([]string{"a", "b", "c"}, s.ids(t)); diff != "" {
		t.Error(diff)
	}
	if s.seen.nacked.Load() != 1 {
		t.Errorf("%d errors, want 1", s.seen.nacked.Load())
	}
	if took := time.Since(start); took > 20*time.Second { // the ack deadline is 30 s
		t.Errorf("it took %s", took)
	}
}

func TestATransactionThatSomebodyAbortedIsEnded(t *testing.T) {
	t.Parallel()
	s := open(t, testdb.Postgres(t))
	s.publish(t, "a", "b", "c")
	start := time.Now()
	s.run(t, wminbox.Config{}, once("b", func(msg *message.Message, next message.HandlerFunc) error {
		tx, _ := watermillsql.TxFromContext(msg.Context())
		if _, err := tx.Exec("SELECT 1/0"); err == nil {
			t.Error("no error")
		}
		_, err := next(msg) // 25P02
		return err
	}))
	s.eventuallyAcked(t, 3)
	if diff := cmp.Diff([]string{"a", "b", "c"}, s.ids(t)); diff != "" {
		t.Error(diff)
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
}

func TestANackAfterTheAddRepeatsNothing(t *testing.T) {
	t.Parallel()
	s := open(t, testdb.Postgres(t))
	s.publish(t, "a", "b")
	s.run(t, wminbox.Config{}, once("a", func(msg *message.Message, next message.HandlerFunc) error {
		if _, err := next(msg); err != nil {
			return err
		}
		return errors.New("a middleware failed") // nacked: sent again in the same transaction
	}))
	s.eventuallyAcked(t, 2)
	if diff := cmp.Diff([]string{"a", "b"}, s.ids(t)); diff != "" {
		t.Error(diff)
	}
	if s.seen.duplicates.Load() != 1 {
		t.Errorf("%d duplicates: the nack did roll back", s.seen.duplicates.Load())
	}
}

func TestARejectThatIsNackedLeavesTheBatchAlone(t *testing.T) {
	t.Parallel()
	s := open(t, testdb.Postgres(t))
	s.publish(t, "a", "")
	deadline := time.Second // then the subscriber gives up, and commits what was acked
	s.ackDeadline = &deadline
	s.run(t, wminbox.Config{Reject: wminbox.Nack{}})
	s.eventuallyAcked(t, 1)
	if got := s.acked(t); got != 1 || s.seen.nacked.Load() < 2 {
		t.Errorf("%d messages are acked, want 1; %d nacks", got, s.seen.nacked.Load())
	}
	if diff := cmp.Diff([]string{"a"}, s.ids(t)); diff != "" {
		t.Error(diff)
	}
}

func TestClosingInTheMiddleOfABatchPassesOverNothing(t *testing.T) {
	t.Parallel()
	s := open(t, testdb.Postgres(t))
	s.publish(t, "a", "b", "c", "d", "e")
	subscriber := s.subscriber(t)
	out, err := subscriber.Subscribe(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	(<-out).Ack()
	<-out
	if err := subscriber.Close(); err != nil {
		t.Fatal(err)
	}
	if got := s.acked(t); got != 1 {
		t.Fatalf("%d messages are acked, want 1", got)
	}
	s.run(t, wminbox.Config{})
	s.eventuallyAcked(t, 5)
	if diff := cmp.Diff([]string{"b", "c", "d", "e"}, s.ids(t)); diff != "" {
		t.Error(diff)
	}
}

func TestAMessageOfAnotherSubscriberIsNacked(t *testing.T) {
	t.Parallel()
	s := open(t, testdb.Postgres(t))
	handle, err := wmsql.NewHandler(s.repo, wminbox.Config{DB: s.db})
	if err != nil {
		t.Fatal(err)
	}
	if err := handle(message.NewMessage("a", nil)); !errors.Is(err, wmsql.ErrNoTransaction) {
		t.Errorf("got %v", err)
	}
}

func TestNothingIsLostWhileTheDatabaseIsAwayForFiveSeconds(t *testing.T) {
	t.Parallel()
	server := testdb.StartServer(t, testdb.Config{})
	s := open(t, server.DSN())
	var want []string
	for i := range 200 {
		want = append(want, fmt.Sprintf("m-%03d", i))
	}
	s.publish(t, want...)
	var deliveries atomic.Int64
	var middle atomic.Bool
	s.run(t, wminbox.Config{}, func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			if deliveries.Add(1) == 150 { // in the middle of the second batch
				if err := server.Stop("fast"); err != nil {
					t.Error(err)
				}
				middle.Store(true)
			}
			return next(msg)
		}
	})
	for !middle.Load() {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(5 * time.Second) // the outage itself
	during := deliveries.Load()
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	s.eventuallyAcked(t, len(want))
	if diff := cmp.Diff(want, s.ids(t)); diff != "" {
		t.Error(diff)
	}
	if during > 200 { // the rest of the batch, once
		t.Errorf("%d deliveries during the outage", during)
	}
}

// Acking what was not added is the one way to lose a message here.
func TestAnErrorBehindTheSavepointLosesNothing(t *testing.T) {
	t.Parallel()
	s := open(t, testdb.Postgres(t))
	s.publish(t, "a", "b", "c")
	for _, statement := range []string{
		`CREATE SEQUENCE tries`,
		`CREATE FUNCTION trouble() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF NEW.message_id = 'b' AND nextval('tries') = 1 THEN RAISE EXCEPTION 'again' USING ERRCODE = '40P01'; END IF;
			RETURN NEW; END $$`,
		`CREATE TRIGGER trouble BEFORE INSERT ON inbox_messages FOR EACH ROW EXECUTE FUNCTION trouble()`,
	} {
		if _, err := s.db.DB.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	s.run(t, wminbox.Config{})
	s.eventuallyAcked(t, 3)
	if diff := cmp.Diff([]string{"a", "b", "c"}, s.ids(t)); diff != "" {
		t.Error(diff)
	}
	if s.seen.nacked.Load() != 1 {
		t.Errorf("%d errors, want 1", s.seen.nacked.Load())
	}
}
