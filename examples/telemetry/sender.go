package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// sendForever plays the shop until ctx ends: four orders a second, every third twice.
func (a *app) sendForever(ctx context.Context, url string) error {
	ticker := time.NewTicker(250 * time.Millisecond)
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		times := 1
		if n%3 == 0 {
			times = 2
		}
		for range times {
			if err := a.send(ctx, url, n); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}

// send is the other side, with its span: its context travels in the headers, is stored
// with the message, and is what the span of the handler links to.
func (a *app) send(ctx context.Context, url string, n int) error {
	ctx, span := a.tracers.Tracer("shop").Start(ctx, "send shop", trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(attribute.String("messaging.operation.name", "send"), attribute.String("messaging.destination.name", shop)))
	defer span.End()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/orders", strings.NewReader(fmt.Sprintf(`{"number":%d}`, n)))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", fmt.Sprintf("order-%d", n))
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(request.Header))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusAccepted {
		return fmt.Errorf("order %d: %s", n, response.Status)
	}
	return nil
}
