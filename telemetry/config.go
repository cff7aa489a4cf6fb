package telemetry

import (
	"errors"
	"slices"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/letterbox-go/letterbox/inbox"
)

// scope names the instrumentation.
const scope = "github.com/letterbox-go/letterbox/telemetry"

// Config holds the settings of New and of Watch. Names is required by New.
type Config struct {
	// TracerProvider and MeterProvider receive what is seen. Default: the global
	// ones of package otel, also those that are set later.
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	// Propagator reads the span context that was stored with a message. Default:
	// the global one. Where it finds none, traceparent and tracestate of W3C
	// Trace Context are tried, which is what the transports store.
	Propagator propagation.TextMapPropagator

	// Names are the message names that may become labels: the name map of the
	// repository, former names included. Every other name is "other". Watch
	// takes the repository's own when there are none here.
	Names *inbox.NameMap
	// ReceiptNames are further names that may become labels: those of receipts,
	// which need not be registered.
	ReceiptNames []string
	// Sources are the sources that may become labels. Every other source is
	// "other"; the empty one stays empty.
	Sources []string

	// ParentFromMessage makes the stored span context the parent of the span
	// of a single message, beside the link to it, so that sender and handler are
	// one trace. Off by default: a message may wait for days, and a batch has
	// no single parent.
	ParentFromMessage bool

	// Interval is how long the numbers of Watch stand before the database is
	// asked again, however often they are collected. Default 15 s.
	Interval time.Duration
	// Timeout bounds each query of Watch. Default 5 s.
	Timeout time.Duration
}

func (c *Config) setDefaults() {
	if c.TracerProvider == nil {
		c.TracerProvider = otel.GetTracerProvider()
	}
	if c.MeterProvider == nil {
		c.MeterProvider = otel.GetMeterProvider()
	}
	if c.Propagator == nil {
		c.Propagator = otel.GetTextMapPropagator()
	}
	if c.Interval == 0 {
		c.Interval = 15 * time.Second
	}
	if c.Timeout == 0 {
		c.Timeout = 5 * time.Second
	}
}

func (c *Config) validate() error {
	var problems []error
	if c.Names == nil {
		problems = append(problems, errors.New("telemetry: config: Names: nil; give it the name map of the repository"))
	}
	if slices.Contains(c.Sources, "") {
		problems = append(problems, errors.New("telemetry: config: Sources: the empty source needs no mention"))
	}
	if c.Interval < 0 {
		problems = append(problems, errors.New("telemetry: config: Interval: negative"))
	}
	if c.Timeout < 0 {
		problems = append(problems, errors.New("telemetry: config: Timeout: negative"))
	}
	return errors.Join(problems...)
}

func (c *Config) tracer() trace.Tracer {
	return c.TracerProvider.Tracer(scope, trace.WithSchemaURL(schemaURL))
}

func (c *Config) meter() metric.Meter {
	return c.MeterProvider.Meter(scope, metric.WithSchemaURL(schemaURL))
}
