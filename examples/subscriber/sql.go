package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/letterbox-go/letterbox/transport/wminbox"
)

// openSQL uses a table of a PostgreSQL database as topic.
func openSQL(ctx context.Context, topic, url string) (*broker, error) {
	config, err := pgx.ParseConfig(url)
	if url == "" || err != nil {
		return nil, errors.New("-broker sql needs -url or -dsn with a postgres:// URL")
	}
	db := stdlib.OpenDB(*config) // pgx's default mode: the schema sends JSON as bytes
	schema := wmsql.DefaultPostgreSQLSchema{
		GeneratePayloadType: func(string) string { return "BYTEA" }, // any payload, not only JSON
	}
	offsets := wmsql.DefaultPostgreSQLOffsetsAdapter{}
	subscriber, err := wmsql.NewSubscriber(db, wmsql.SubscriberConfig{
		SchemaAdapter: schema, OffsetsAdapter: offsets, InitializeSchema: true, PollInterval: 50 * time.Millisecond,
	}, nil)
	if err != nil {
		return nil, err
	}
	if err := subscriber.SubscribeInitialize(topic); err != nil {
		return nil, err
	}
	publisher, err := wmsql.NewPublisher(db, wmsql.PublisherConfig{SchemaAdapter: schema}, nil)
	if err != nil {
		return nil, err
	}
	messages := schema.MessagesTable(topic)
	return &broker{
		name: "watermill-sql", topic: topic, publisher: publisher, subscriber: subscriber,
		ids:         []wminbox.IDExtractor{wminbox.CloudEvents},
		sendForeign: func(m []foreign) error { return insertForeign(ctx, db, messages, m) },
		close: closeAll(publisher.Close, subscriber.Close, func() error {
			_, err := db.Exec(fmt.Sprintf(`DROP TABLE IF EXISTS %s, %s`, messages, offsets.MessagesOffsetsTable(topic)))
			return err
		}, db.Close),
	}, nil
}

// insertForeign is a producer that knows the table only.
func insertForeign(ctx context.Context, db *sql.DB, table string, messages []foreign) error {
	query := strings.ReplaceAll(`INSERT INTO {t} (uuid, payload, metadata, transaction_id) VALUES ('', $1, $2, pg_current_xact_id())`, "{t}", table)
	for _, m := range messages {
		metadata, err := json.Marshal(map[string]string{"ce-id": m.id, "ce-source": "/shop"})
		if err != nil {
			return err
		}
		if _, err := db.ExecContext(ctx, query, []byte(m.body), string(metadata)); err != nil {
			return err
		}
	}
	return nil
}
