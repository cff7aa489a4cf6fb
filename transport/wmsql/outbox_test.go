package wmsql_test

import (
	"context"
	"errors"
	"testing"

	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/mediator"
	"github.com/letterbox-go/letterbox/transport/wmsql"
)

type ship struct {
	Order string
	Fail  bool
}

func TestWhatAHandlerPublishesCommitsWithItsMessageOrNotAtAll(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(testing.TB) *bun.DB{"pgx": testdb.PGX, "pgdriver": testdb.PGDriver} {
		for kind, payload := range map[string]string{"JSON": "JSON", "bytes": "BYTEA"} {
			t.Run(name+" "+kind, func(t *testing.T) {
				t.Parallel()
				published(t, open(t), payload)
			})
		}
	}
}

func published(t *testing.T, db *bun.DB, payloadType string) {
	ctx := t.Context()
	schema := wmsql.Schema{DefaultPostgreSQLSchema: watermillsql.DefaultPostgreSQLSchema{
		GeneratePayloadType: func(string) string { return payloadType },
	}}
	const topic = "ship$1ments"
	for _, query := range schema.SchemaInitializingQueries(topic) {
		if _, err := db.ExecContext(ctx, query.Query); err != nil {
			t.Fatal(err)
		}
	}
	names := inbox.NewNameMap()
	inbox.Register[ship](names, "ship")
	repo, err := inbox.NewRepository(db, names, inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := repo.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	const odd = `{"q":"?","a":"it's \\ $1 \" ü"}`
	requests := mediator.NewRequestMap()
	mediator.BindCommand(requests, func(ctx context.Context, c ship) error {
		publisher, err := watermillsql.NewPublisher(wmsql.Executor(ctx, inbox.DB(ctx, db)), watermillsql.PublisherConfig{SchemaAdapter: schema}, nil)
		if err != nil {
			return err
		}
		msg := message.NewMessage(c.Order, []byte(odd))
		msg.Metadata.Set("name", "it's ? $2")
		if err := publisher.Publish(topic, msg, message.NewMessage(c.Order+"b", []byte(odd))); err != nil {
			return err
		}
		if c.Fail {
			return inbox.Permanent(errors.New("no"))
		}
		return nil
	})
	if _, err := repo.Accept(ctx, []inbox.Entry{
		{MessageID: "1", Message: ship{Order: "o-1"}},
		{MessageID: "2", Message: ship{Order: "o-2", Fail: true}},
	}); err != nil {
		t.Fatal(err)
	}
	processor, err := inbox.NewProcessor(repo, inbox.ProcessorConfig{Requests: mediator.NewRequestMediator(requests)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := processor.Drain(ctx); err != nil {
		t.Fatal(err)
	}
	stats, err := repo.Stats(ctx)
	if err != nil || stats.Processed != 1 || stats.Dead != 1 {
		t.Fatalf("%+v %v", stats, err)
	}
	var rows []struct {
		UUID     string
		Payload  []byte
		Metadata string
	}
	if err := db.NewRaw(`SELECT uuid, payload, metadata::text FROM "watermill_ship$1ments" ORDER BY uuid`).Scan(ctx, &rows); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, row := range rows {
		got = append(got, row.UUID, string(row.Payload), row.Metadata)
	}
	want := []string{"o-1", odd, `{"name":"it's ? $2"}`, "o-1b", odd, `{}`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
}
