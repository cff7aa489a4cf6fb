package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/uptrace/bun"
	promexporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/mediator"
	"github.com/letterbox-go/letterbox/telemetry"
	"github.com/letterbox-go/letterbox/transport/httpinbox"
)

// shop is the one source that the application knows.
const shop = "shop"

// order is the message.
type order struct {
	Number int `json:"number"`
}

// app is an inbox that is watched.
type app struct {
	tracers   *sdktrace.TracerProvider
	meters    *sdkmetric.MeterProvider
	unwatch   func() error
	repo      *inbox.Repository
	processor *inbox.Processor
	handler   http.Handler
}

// newApp wires everything; spans are written to traces.
func newApp(ctx context.Context, db *bun.DB, traces io.Writer, log *slog.Logger) (*app, error) {
	a := &app{}
	registry := prometheus.NewRegistry()
	if err := a.providers(registry, traces); err != nil {
		return nil, err
	}
	names := inbox.NewNameMap()
	inbox.Register[order](names, "order")

	// 1. The observer. With otel.SetTracerProvider and otel.SetMeterProvider, Names and
	// Sources are all it needs.
	config := telemetry.Config{
		TracerProvider: a.tracers,
		MeterProvider:  a.meters,
		Propagator:     propagation.TraceContext{},
		Names:          names,
		Sources:        []string{shop},
	}
	observer, err := telemetry.New(config)
	if err != nil {
		return nil, err
	}
	if a.repo, err = inbox.NewRepository(db, names, inbox.Config{Prefix: "letterbox_telemetry", Observer: observer, Logger: log}); err != nil {
		return nil, err
	}
	if err := a.repo.Migrate(ctx); err != nil {
		return nil, err
	}

	// 2. The numbers that have to be asked for.
	if a.unwatch, err = telemetry.Watch(a.repo, config); err != nil {
		return nil, err
	}
	requests := mediator.NewRequestMap()
	mediator.BindCommand(requests, ship)
	a.processor, err = inbox.NewProcessor(a.repo, inbox.ProcessorConfig{
		Requests: mediator.NewRequestMediator(requests), MaxAttempts: 3, Backoff: inbox.Backoff{Base: 100 * time.Millisecond, Max: time.Second},
	})
	if err != nil {
		return nil, err
	}
	return a, a.routes(registry)
}

// providers are the SDK's: Prometheus asks for metrics, spans go to traces.
func (a *app) providers(registry *prometheus.Registry, traces io.Writer) error {
	metrics, err := promexporter.New(promexporter.WithRegisterer(registry))
	if err != nil {
		return err
	}
	spans, err := stdouttrace.New(stdouttrace.WithWriter(traces))
	if err != nil {
		return err
	}
	a.meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(metrics))
	a.tracers = sdktrace.NewTracerProvider(sdktrace.WithBatcher(spans))
	return nil
}

func (a *app) routes(registry *prometheus.Registry) error {
	accept, err := httpinbox.New(a.repo, httpinbox.Config[order]{Identify: httpinbox.IdempotencyKey(), Source: shop})
	if err != nil {
		return err
	}
	// 3. The probes.
	health, err := inbox.NewHealth(a.repo, a.processor, inbox.HealthConfig{})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/orders", accept)
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle("/livez", httpinbox.Livez(health))
	mux.Handle("/readyz", httpinbox.Readyz(health))
	a.handler = mux
	return nil
}

// close sends what is left to the exporters.
func (a *app) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(a.unwatch(), a.tracers.Shutdown(ctx), a.meters.Shutdown(ctx))
}

var errNoStock = errors.New("nothing in stock")

// ship is the handler: every fifth order fails once in a while, every eleventh for ever.
func ship(ctx context.Context, o order) error {
	info, _ := inbox.FromContext(ctx)
	switch {
	case o.Number%11 == 10:
		return inbox.Permanent(errNoStock)
	case o.Number%5 == 4 && info.Attempt < 2:
		return fmt.Errorf("order %d: %w", o.Number, errNoStock)
	}
	return nil
}
