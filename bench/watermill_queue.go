package main

import (
	"context"
	"database/sql"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	wm "github.com/ThreeDotsLabs/watermill/message"
)

// watermillQueue is the queue schema of watermill-sql, which v3.1.0 does not have
// and v4 does. Acknowledged messages are deleted: it has no index that would keep
// it from reading them again and again.
type watermillQueue struct {
	db        *sql.DB
	publisher *wmsql.Publisher
}

func newWatermillQueue() peer { return &watermillQueue{} }

func (w *watermillQueue) open(_ context.Context, dsn string) (err error) {
	if w.db, err = openStdlib(dsn, 80); err != nil {
		return err
	}
	subscriber, err := w.subscriber(settings{batch: 100, poll: time.Second})
	if err != nil {
		return err
	}
	if err := subscriber.SubscribeInitialize(topic); err != nil {
		return err
	}
	w.publisher, err = wmsql.NewPublisher(wmsql.BeginnerFromStdSQL(w.db), wmsql.PublisherConfig{SchemaAdapter: wmsql.PostgreSQLQueueSchema{}}, nil)
	return err
}

func (w *watermillQueue) subscriber(how settings) (*wmsql.Subscriber, error) {
	return wmsql.NewSubscriber(wmsql.BeginnerFromStdSQL(w.db), wmsql.SubscriberConfig{
		SchemaAdapter:  wmsql.PostgreSQLQueueSchema{SubscribeBatchSize: how.batch},
		OffsetsAdapter: wmsql.PostgreSQLQueueOffsetsAdapter{DeleteOnAck: true},
		PollInterval:   how.poll,
	}, watermill.NopLogger{})
}

func (w *watermillQueue) accept(_ context.Context, messages []message) error {
	return w.publisher.Publish(topic, watermillMessages(messages)...)
}

func (w *watermillQueue) process(ctx context.Context, how settings, work *work) error {
	return consumers(ctx, how, work, func() (wm.Subscriber, error) { return w.subscriber(how) }, func(m *wm.Message) (stdExecutor, bool) {
		tx, ok := wmsql.TxFromContext(m.Context())
		if !ok {
			return nil, false
		}
		std, ok := tx.(*wmsql.StdSQLTx)
		if !ok {
			return nil, false
		}
		return std.Tx, true
	})
}

func (w *watermillQueue) counts() counts {
	return counts{stored: `SELECT count(*) FROM watermill_bench`, unfinished: `SELECT count(*) FROM watermill_bench`}
}

func (w *watermillQueue) close() {
	if w.db != nil {
		_ = w.db.Close()
	}
}
