package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	wm "github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

const topic = "bench"

// watermillSQL is watermill-sql v3 with its default, offset-based schema, over
// pgx. The handler inserts in the subscriber's transaction. It keeps the order of
// its one consumer group, so a second consumer only waits for the first.
type watermillSQL struct {
	db        *sql.DB
	publisher *wmsql.Publisher
}

func newWatermill() peer { return &watermillSQL{} }

func openStdlib(dsn string, connections int) (*sql.DB, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db, nil
}

func (w *watermillSQL) open(_ context.Context, dsn string) (err error) {
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
	w.publisher, err = wmsql.NewPublisher(w.db, wmsql.PublisherConfig{SchemaAdapter: wmsql.DefaultPostgreSQLSchema{}}, nil)
	return err
}

func (w *watermillSQL) subscriber(how settings) (*wmsql.Subscriber, error) {
	return wmsql.NewSubscriber(w.db, wmsql.SubscriberConfig{
		SchemaAdapter:  wmsql.DefaultPostgreSQLSchema{SubscribeBatchSize: how.batch},
		OffsetsAdapter: wmsql.DefaultPostgreSQLOffsetsAdapter{},
		PollInterval:   how.poll,
	}, watermill.NopLogger{})
}

func (w *watermillSQL) accept(_ context.Context, messages []message) error {
	return w.publisher.Publish(topic, watermillMessages(messages)...)
}

func watermillMessages(messages []message) []*wm.Message {
	out := make([]*wm.Message, len(messages))
	for i := range messages {
		out[i] = wm.NewMessage(messages[i].ID, messages[i].encode())
	}
	return out
}

func (w *watermillSQL) process(ctx context.Context, how settings, work *work) error {
	return consumers(ctx, how, work, func() (wm.Subscriber, error) { return w.subscriber(how) }, func(m *wm.Message) (stdExecutor, bool) {
		return wmsql.TxFromContext(m.Context())
	})
}

// stdExecutor is a transaction of database/sql.
type stdExecutor interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// consumers runs how.workers subscribers until the work is done.
func consumers(ctx context.Context, how settings, w *work, subscribe func() (wm.Subscriber, error), transaction func(*wm.Message) (stdExecutor, bool)) error {
	return w.until(ctx, func(ctx context.Context) error {
		return together(ctx, repeat(how.workers, func(ctx context.Context) error {
			subscriber, err := subscribe()
			if err != nil {
				return err
			}
			defer subscriber.Close()
			messages, err := subscriber.Subscribe(ctx, topic)
			if err != nil {
				return ignoreEnd(ctx, err)
			}
			for m := range messages {
				tx, ok := transaction(m)
				if !ok {
					return errors.New("the message has no transaction")
				}
				if err := handleStd(tx, m, w); err != nil {
					return ignoreEnd(ctx, err)
				}
				m.Ack()
			}
			return nil
		})...)
	})
}

func handleStd(tx stdExecutor, m *wm.Message, w *work) error {
	body, err := decode(m.Payload)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(m.Context(), insertEffect, body.ID, body.Account, body.Cents); err != nil {
		return err
	}
	w.did(1)
	return nil
}

func (w *watermillSQL) counts() counts {
	return counts{
		stored: `SELECT count(*) FROM watermill_bench`,
		unfinished: `
SELECT count(*) FROM watermill_bench m
WHERE (m.transaction_id, m."offset") > (SELECT last_processed_transaction_id, offset_acked FROM watermill_offsets_bench)`,
	}
}

func (w *watermillSQL) close() {
	if w.db != nil {
		_ = w.db.Close()
	}
}
