package telemetry

import (
	"context"
	"strings"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/letterbox-go/letterbox/inbox"
)

// descriptionMost is how much of an error's text goes into a span, in bytes.
const descriptionMost = 1000

type runKey struct{}

// run is a handler run whose outcome nobody knows yet.
type run struct {
	span        trace.Span
	destination string
	ended       atomic.Bool
}

// begin starts the span of a handler run and puts it into the context.
//
// A batch handler has one span for all of its messages, with a link to the
// creation context of each: the conventions let one "process" span account for a
// batch, the handler is called once, its child spans can have one parent only,
// and its messages succeed or are rolled back together.
func (o *observer) begin(ctx context.Context, messages []inbox.Info) (*run, context.Context) {
	first := messages[0]
	r := &run{destination: o.labels.destinationOf(messages)}
	attributes := []attribute.KeyValue{
		keySystem.String(system),
		keyOperation.String(operation),
		keyOperationType.String(operation),
		keyDestination.String(r.destination),
		keyName.String(first.Name),
	}
	if len(messages) > 1 {
		attributes = append(attributes, keyBatchCount.Int(len(messages)))
	} else {
		attributes = append(attributes,
			keyMessageID.String(first.MessageID), keySource.String(first.Source), keyAttempt.Int(first.Attempt))
		if first.ID != 0 {
			attributes = append(attributes, keyID.Int64(first.ID))
		}
	}
	ctx, links := o.related(ctx, messages)
	ctx, r.span = o.tracer.Start(ctx, operation+" "+r.destination,
		trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(attributes...), trace.WithLinks(links...))
	return r, context.WithValue(ctx, runKey{}, r)
}

// related returns the links of a span for messages, and ctx with its parent.
func (o *observer) related(ctx context.Context, messages []inbox.Info) (context.Context, []trace.Link) {
	var links []trace.Link
	for _, m := range messages {
		stored := o.stored(m.Metadata)
		if !stored.IsValid() {
			continue
		}
		link := trace.Link{SpanContext: stored}
		if len(messages) > 1 {
			link.Attributes = []attribute.KeyValue{
				keyMessageID.String(m.MessageID), keySource.String(m.Source), keyID.Int64(m.ID), keyAttempt.Int(m.Attempt),
			}
		}
		links = append(links, link)
	}
	if !o.config.ParentFromMessage || len(messages) > 1 || len(links) == 0 {
		return ctx, links
	}
	// The conventions ask for a link to the span that would have been the parent.
	if ambient := trace.SpanContextFromContext(ctx); ambient.IsValid() {
		links = append(links, trace.Link{SpanContext: ambient})
	}
	return trace.ContextWithRemoteSpanContext(ctx, links[0].SpanContext), links
}

// stored reads the span context that was stored with a message. Baggage that
// may be beside it is not taken over: it came from outside.
func (o *observer) stored(metadata map[string]string) trace.SpanContext {
	if len(metadata) == 0 {
		return trace.SpanContext{}
	}
	for _, p := range []propagation.TextMapPropagator{o.config.Propagator, propagation.TraceContext{}} {
		ctx := p.Extract(context.Background(), propagation.MapCarrier(metadata))
		if found := trace.SpanContextFromContext(ctx); found.IsValid() {
			return found
		}
	}
	return trace.SpanContext{}
}

// end finishes the span, once, with the outcome and the times of the run.
func (r *run) end(seen inbox.Observation, labels *labels) (first bool) {
	if !r.ended.CompareAndSwap(false, true) {
		return false
	}
	if r.span.IsRecording() {
		r.span.SetAttributes(keyOutcome.String(seen.Kind.String()), keyInline.Bool(seen.Inline))
		if seen.Delay > 0 {
			r.span.SetAttributes(keyDelay.Float64(seen.Delay.Seconds()))
		}
		if failed(seen) {
			r.span.SetAttributes(keyErrorType.String(labels.errorType(seen.Err)))
			r.span.SetStatus(codes.Error, describe(seen.Err))
		}
	}
	if seen.Began.IsZero() {
		r.span.End()
	} else {
		r.span.End(trace.WithTimestamp(seen.Began.Add(seen.Duration)))
	}
	return true
}

// describe is the text of an error, made valid and cut.
func describe(err error) string {
	text := err.Error()
	if len(text) > descriptionMost {
		text = text[:descriptionMost]
	}
	return strings.ToValidUTF8(text, "")
}
