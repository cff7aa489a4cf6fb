package telemetry_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"

	"github.com/letterbox-go/letterbox/telemetry"
)

func TestInject(t *testing.T) {
	t.Parallel()
	if got := telemetry.Inject(t.Context(), nil); got != nil {
		t.Errorf("without a span: %v", got)
	}
	state, err := trace.ParseTraceState("a=1")
	if err != nil {
		t.Fatal(err)
	}
	ctx := trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, TraceState: state,
	}))
	got := telemetry.Inject(ctx, map[string]string{"k": "v"})
	want := map[string]string{"k": "v", "traceparent": "00-01000000000000000000000000000000-0200000000000000-01", "tracestate": "a=1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
