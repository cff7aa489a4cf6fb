package telemetry_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	_ "modernc.org/sqlite"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/mediator"
	"github.com/letterbox-go/letterbox/telemetry"
)

type CreditAccount struct{ Cents int64 }

func Example() {
	ctx := context.Background()
	pool, err := sql.Open("sqlite", "file::memory:")
	check(err)
	defer pool.Close()
	pool.SetMaxOpenConns(1)
	names := inbox.NewNameMap()
	inbox.Register[CreditAccount](names, "credit_account")
	requests := mediator.NewRequestMap()
	mediator.BindCommand(requests, func(context.Context, CreditAccount) error { return nil })

	// Exporters are the application's; this one keeps spans in memory.
	spans := tracetest.NewInMemoryExporter()
	observer, err := telemetry.New(telemetry.Config{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)),
		Names:          names,
		Sources:        []string{"psp-x"},
	})
	check(err)
	repo, err := inbox.NewRepository(bun.NewDB(pool, sqlitedialect.New()), names, inbox.Config{Observer: observer})
	check(err)
	check(repo.Migrate(ctx))
	stop, err := telemetry.Watch(repo, telemetry.Config{}) // inbox.unfinished and inbox.oldest.age
	check(err)
	defer func() { check(stop()) }()

	// The span of ctx, if there is one, is what the handler's span links to.
	entry := inbox.Entry{Source: "psp-x", MessageID: "pay-1", Message: CreditAccount{500}, Metadata: telemetry.Inject(ctx, nil)}
	_, err = repo.Accept(ctx, []inbox.Entry{entry})
	check(err)
	processor, err := inbox.NewProcessor(repo, inbox.ProcessorConfig{Requests: mediator.NewRequestMediator(requests)})
	check(err)
	_, err = processor.Drain(ctx)
	check(err)
	for _, span := range spans.GetSpans() {
		fmt.Println(span.Name, span.SpanKind)
	}
	// Output: process psp-x consumer
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
