package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/propagation"

	"github.com/letterbox-go/letterbox/transport/tracecontext"
)

// Inject puts the span context of ctx into metadata, which it makes when it is
// nil, and returns it. It is for applications that fill inbox.Entry themselves:
// the span of ctx is then what the handler's span links to. The transports store
// the headers of the sender without it. Without a span in ctx metadata stays as it is.
func Inject(ctx context.Context, metadata map[string]string) map[string]string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return tracecontext.Put(metadata, carrier[tracecontext.Traceparent], carrier[tracecontext.Tracestate])
}
