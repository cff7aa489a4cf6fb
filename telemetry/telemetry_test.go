package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/uptrace/bun"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/mediator"
	"github.com/letterbox-go/letterbox/telemetry"
)

// recorder is the SDK with exporters in memory.
type recorder struct {
	spans   *tracetest.InMemoryExporter
	tracers *sdktrace.TracerProvider
	reader  *metric.ManualReader
	meters  *metric.MeterProvider
}

func newRecorder() *recorder {
	spans, reader := tracetest.NewInMemoryExporter(), metric.NewManualReader()
	return &recorder{
		spans:   spans,
		tracers: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)),
		reader:  reader,
		meters:  metric.NewMeterProvider(metric.WithReader(reader)),
	}
}

func (r *recorder) config(names *inbox.NameMap, sources ...string) telemetry.Config {
	return telemetry.Config{TracerProvider: r.tracers, MeterProvider: r.meters, Names: names, Sources: sources}
}

// collect returns the metrics by name.
func (r *recorder) collect(t testing.TB) map[string]metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	metrics := map[string]metricdata.Metrics{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			metrics[m.Name] = m
		}
	}
	return metrics
}

// series returns the value of each series of a metric, the count of a histogram.
func series(m metricdata.Metrics) map[attribute.Set]int64 {
	values := map[attribute.Set]int64{}
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			values[p.Attributes] = p.Value
		}
	case metricdata.Gauge[int64]:
		for _, p := range data.DataPoints {
			values[p.Attributes] = p.Value
		}
	case metricdata.Gauge[float64]:
		for _, p := range data.DataPoints {
			values[p.Attributes] = int64(p.Value * 1e9)
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			values[p.Attributes] = int64(p.Count)
		}
	}
	return values
}

// value returns the sum of the series that have all of the attributes.
func value(m metricdata.Metrics, want ...attribute.KeyValue) (sum int64) {
	for set, n := range series(m) {
		matches := true
		for _, kv := range want {
			got, ok := set.Value(kv.Key)
			matches = matches && ok && got == kv.Value
		}
		if matches {
			sum += n
		}
	}
	return sum
}

// attributes of a span, or a link, by key.
func attributes(all []attribute.KeyValue) map[string]any {
	found := map[string]any{}
	for _, kv := range all {
		found[string(kv.Key)] = kv.Value.AsInterface()
	}
	return found
}

// job is the message of the tests; many goes to a batch handler.
type (
	job  struct{ ID string }
	many struct{ ID string }
)

// app is an inbox whose handlers are scripted by message id.
type app struct {
	*recorder
	db     *bun.DB
	names  *inbox.NameMap
	repo   *inbox.Repository
	proc   *inbox.Processor
	script map[string]func(ctx context.Context) error
	batch  func(ctx context.Context, messages []many) error
}

func databases(t *testing.T, test func(t *testing.T, db *bun.DB)) {
	t.Run("PostgreSQL", func(t *testing.T) { t.Parallel(); test(t, testdb.PGX(t)) })
	t.Run("SQLite", func(t *testing.T) { t.Parallel(); test(t, testdb.SQLite(t)) })
}

func newApp(t *testing.T, db *bun.DB, change func(*telemetry.Config), processor inbox.ProcessorConfig) *app {
	t.Helper()
	a := &app{recorder: newRecorder(), db: db, names: inbox.NewNameMap(), script: map[string]func(context.Context) error{}}
	inbox.Register[job](a.names, "job")
	inbox.Register[many](a.names, "many")
	config := a.config(a.names, "shop")
	if change != nil {
		change(&config)
	}
	observer, err := telemetry.New(config)
	if err != nil {
		t.Fatal(err)
	}
	if a.repo, err = inbox.NewRepository(db, a.names, inbox.Config{Observer: observer}); err != nil {
		t.Fatal(err)
	}
	if err := a.repo.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), `CREATE TABLE effects (job TEXT NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	requests := mediator.NewRequestMap()
	mediator.BindCommand(requests, func(ctx context.Context, j job) error {
		if _, err := inbox.DB(ctx, db).ExecContext(ctx, `INSERT INTO effects (job) VALUES (?)`, j.ID); err != nil {
			return err
		}
		if do := a.script[j.ID]; do != nil {
			return do(ctx)
		}
		return nil
	})
	mediator.BindBatch(requests, func(ctx context.Context, messages []many) error {
		if a.batch != nil {
			return a.batch(ctx, messages)
		}
		return nil
	})
	processor.Requests = mediator.NewRequestMediator(requests)
	if a.proc, err = inbox.NewProcessor(a.repo, processor); err != nil {
		t.Fatal(err)
	}
	return a
}

// accept stores a message for each id, with the context of a span each.
func (a *app) accept(t *testing.T, source string, message func(id string) any, ids ...string) map[string]trace.SpanContext {
	t.Helper()
	sent := map[string]trace.SpanContext{}
	entries := make([]inbox.Entry, len(ids))
	for i, id := range ids {
		ctx, span := sdktrace.NewTracerProvider().Tracer("test").Start(t.Context(), "send")
		sent[id] = span.SpanContext()
		entries[i] = inbox.Entry{MessageID: id, Source: source, Message: message(id), Metadata: telemetry.Inject(ctx, nil)}
	}
	if _, err := a.repo.Accept(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
	return sent
}

func (a *app) drain(t *testing.T) {
	t.Helper()
	if _, err := a.proc.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func oneJob(id string) any          { return job{id} }
func ofMany(id string) any          { return many{id} }
func failing(context.Context) error { return fmt.Errorf("wrapped: %w", &refusal{}) }

// refusal is an error with a type of its own.
type refusal struct{}

func (*refusal) Error() string { return "secret account 4711 refused" }

var errGone = errors.New("gone for good")
