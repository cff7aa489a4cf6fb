// Command outbox shows the way out again: a handler publishes in the transaction of the
// inbox, and Watermill's forwarder brings what was committed to the broker.
//
//	go run ./examples/outbox
//
// starts a temporary PostgreSQL if it finds one on this machine; -dsn takes another. The
// broker is Watermill's in-memory one, so that nothing else is needed. The last line is
// one JSON object; the exit code is 1 when it does not add up. docs/outbox.md explains.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/mediator"
	lbsql "github.com/letterbox-go/letterbox/transport/wmsql"
)

func main() {
	dsn := flag.String("dsn", "", "postgres://...; default: a temporary server")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ok, err := start(ctx, *dsn)
	if err != nil {
		fmt.Fprintln(os.Stderr, "outbox:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

func start(ctx context.Context, dsn string) (bool, error) {
	if dsn == "" {
		server, err := testdb.Start(ctx, testdb.Config{})
		if err != nil {
			return false, fmt.Errorf("no -dsn, and %w", err)
		}
		defer server.Close()
		dsn = server.DSN()
	}
	db, err := testdb.OpenPGX(dsn)
	if err != nil {
		return false, err
	}
	defer db.Close()
	return run(ctx, db)
}

const (
	prefix    = "letterbox_outbox"
	outbox    = "letterbox_outbox" // watermill-sql's topic: the table between handler and forwarder
	shipments = "shipments"        // the broker's topic
	orders    = 20
)

// ship is the command, shipped the event it leads to.
type ship struct{ Order int }

type shipped struct{ Order int }

// schema: an envelope of the forwarder is JSON, whatever the message in it is.
var schema = lbsql.Schema{}

func run(ctx context.Context, db *bun.DB) (bool, error) {
	drop(ctx, db) // what an interrupted run left
	defer drop(context.WithoutCancel(ctx), db)
	// The table is made beforehand, not by the publisher in a handler's transaction.
	for _, query := range schema.SchemaInitializingQueries(outbox) {
		if _, err := db.ExecContext(ctx, query.Query); err != nil {
			return false, err
		}
	}
	repo, processor, err := worker(ctx, db)
	if err != nil {
		return false, err
	}
	broker := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: orders}, watermill.NopLogger{})
	received, err := broker.Subscribe(ctx, shipments)
	if err != nil {
		return false, err
	}
	stop, err := forward(ctx, db, broker)
	if err != nil {
		return false, err
	}

	// Order 13 fails after it has published: nobody may hear of its shipment.
	var entries []inbox.Entry
	for i := range orders {
		entries = append(entries, inbox.Entry{MessageID: fmt.Sprint(i), Message: ship{Order: i}})
	}
	if _, err := repo.Accept(ctx, entries); err != nil {
		return false, err
	}
	if _, err := processor.Drain(ctx); err != nil {
		return false, err
	}
	seen := map[int]int{}
	for quiet := false; !quiet; {
		select {
		case msg := <-received:
			var event shipped
			if err := json.Unmarshal(msg.Payload, &event); err != nil {
				return false, err
			}
			seen[event.Order]++
			msg.Ack()
		case <-time.After(3 * time.Second):
			quiet = true
		}
	}
	stats, err := repo.Stats(ctx)
	if err != nil {
		return false, err
	}
	ok := len(seen) == orders-1 && seen[13] == 0 && int(stats.Processed) == orders-1 && stats.Dead == 1
	fmt.Printf(`{"processed":%d,"dead":%d,"received":%d,"ok":%v}`+"\n", stats.Processed, stats.Dead, len(seen), ok)
	return ok, errors.Join(stop(), broker.Close())
}

// drop removes the example's tables.
func drop(ctx context.Context, db *bun.DB) {
	for _, table := range []string{prefix + "_messages", prefix + "_queue", prefix + "_schema", "watermill_" + outbox, "watermill_offsets_" + outbox} {
		_, _ = db.ExecContext(ctx, `DROP TABLE IF EXISTS "`+table+`"`)
	}
}

// worker is the inbox with a handler that publishes.
func worker(ctx context.Context, db *bun.DB) (*inbox.Repository, *inbox.Processor, error) {
	names := inbox.NewNameMap()
	inbox.Register[ship](names, "ship")
	repo, err := inbox.NewRepository(db, names, inbox.Config{Prefix: prefix})
	if err != nil {
		return nil, nil, err
	}
	if err := repo.Migrate(ctx); err != nil {
		return nil, nil, err
	}
	requests := mediator.NewRequestMap()
	mediator.BindCommand(requests, func(ctx context.Context, c ship) error {
		if err := publish(ctx, inbox.DB(ctx, db), shipped(c)); err != nil {
			return err
		}
		if c.Order == 13 {
			return inbox.Permanent(errors.New("the parcel fell off the van"))
		}
		return nil
	})
	processor, err := inbox.NewProcessor(repo, inbox.ProcessorConfig{Requests: mediator.NewRequestMediator(requests)})
	return repo, processor, err
}

// publish puts the event into the outbox, in the transaction behind db. Its UUID comes
// from the order, so that a consumer recognises it if the forwarder sends it twice.
func publish(ctx context.Context, db bun.IDB, event shipped) error {
	table, err := wmsql.NewPublisher(lbsql.Executor(ctx, db), wmsql.PublisherConfig{SchemaAdapter: schema}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	payload, err := json.Marshal(event)
	if err != nil {
		return err
	}
	publisher := forwarder.NewPublisher(table, forwarder.PublisherConfig{ForwarderTopic: outbox})
	return publisher.Publish(shipments, message.NewMessage(fmt.Sprint("shipped-", event.Order), payload))
}

// forward runs Watermill's forwarder: from the outbox to the broker.
func forward(ctx context.Context, db *bun.DB, broker message.Publisher) (stop func() error, err error) {
	logger := watermill.NopLogger{}
	subscriber, err := wmsql.NewSubscriber(db.DB, wmsql.SubscriberConfig{
		SchemaAdapter: schema, OffsetsAdapter: wmsql.DefaultPostgreSQLOffsetsAdapter{},
		InitializeSchema: true, PollInterval: 100 * time.Millisecond,
	}, logger)
	if err != nil {
		return nil, err
	}
	f, err := forwarder.NewForwarder(subscriber, broker, logger, forwarder.Config{ForwarderTopic: outbox})
	if err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	<-f.Running()
	return func() error { return errors.Join(f.Close(), <-done) }, nil
}
