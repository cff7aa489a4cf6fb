package telemetry

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/letterbox-go/letterbox/inbox"
)

// meters holds the instruments of an observer.
type meters struct {
	duration   metric.Float64Histogram
	claim      metric.Float64Histogram
	consumed   metric.Int64Counter
	stored     metric.Int64Counter
	duplicates metric.Int64Counter
	mismatches metric.Int64Counter
	retries    metric.Int64Counter
	dead       metric.Int64Counter
	sweeps     metric.Int64Counter
}

func newMeters(meter metric.Meter) (*meters, error) {
	var problems []error
	counter := func(name, description string) metric.Int64Counter {
		c, err := meter.Int64Counter(name, metric.WithUnit(messageUnit), metric.WithDescription(description))
		problems = append(problems, err)
		return c
	}
	histogram := func(name, description string, buckets []float64) metric.Float64Histogram {
		h, err := meter.Float64Histogram(name, metric.WithUnit(secondsUnit), metric.WithDescription(description),
			metric.WithExplicitBucketBoundaries(buckets...))
		problems = append(problems, err)
		return h
	}
	m := &meters{
		duration:   histogram(processDuration, "Duration of a handler run.", durationBuckets),
		claim:      histogram(claimLength, "Duration of a claim.", claimBuckets),
		consumed:   counter(consumed, "Messages that were given to a handler."),
		stored:     counter(accepted, "New messages that were stored."),
		duplicates: counter(duplicates, "Repeats of a stored message."),
		mismatches: counter(mismatches, "Repeats of a stored message with another body."),
		retries:    counter(retries, "Attempts that failed and will be followed by another."),
		dead:       counter(dead, "Messages that were given up."),
		sweeps:     counter(swept, "Messages or payloads that were removed after their retention."),
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	for _, what := range []string{"messages", "payloads"} {
		m.swept(context.Background(), inbox.Observation{Action: what})
	}
	return m, nil
}

func (m *meters) accepted(ctx context.Context, kind inbox.ObservationKind, labels *labels, identity inbox.Identity) {
	counter := m.stored
	switch kind {
	case inbox.SawDuplicate:
		counter = m.duplicates
	case inbox.SawMismatch:
		counter = m.mismatches
	}
	counter.Add(ctx, 1, message(labels, identity))
}

func (m *meters) swept(ctx context.Context, seen inbox.Observation) {
	what := other
	if seen.Action == "messages" || seen.Action == "payloads" {
		what = seen.Action
	}
	m.sweeps.Add(ctx, seen.Count, metric.WithAttributeSet(attribute.NewSet(keySwept.String(what))))
}

// message counts a message that was given to a handler, and its fate.
func (m *meters) message(ctx context.Context, seen inbox.Observation, labels *labels) {
	m.consumed.Add(ctx, 1, processed(seen, labels, labels.destination(seen.Message.Identity)))
	// Nothing is added, too: Prometheus sees no increase in a series that begins
	// with its first death.
	set := message(labels, seen.Message.Identity)
	m.retries.Add(ctx, one(seen.Kind == inbox.SawFailed), set)
	m.dead.Add(ctx, one(seen.Kind == inbox.SawDead), set)
}

func one(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

// run records a handler run, of one message or of a batch.
func (m *meters) run(ctx context.Context, seen inbox.Observation, labels *labels, destination string) {
	m.duration.Record(ctx, seen.Duration.Seconds(), processed(seen, labels, destination))
}

// processed are the labels of the metrics that have a convention.
func processed(seen inbox.Observation, labels *labels, destination string) metric.MeasurementOption {
	attributes := []attribute.KeyValue{
		keySystem.String(system),
		keyOperation.String(operation),
		keyOperationType.String(operation),
		keyDestination.String(destination),
		keyName.String(labels.name(seen.Message.Name)),
		keyOutcome.String(seen.Kind.String()),
	}
	if failed(seen) {
		attributes = append(attributes, keyErrorType.String(labels.errorType(seen.Err)))
	}
	return metric.WithAttributeSet(attribute.NewSet(attributes...))
}

// message are the labels of counters of our own.
func message(labels *labels, identity inbox.Identity) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(
		keyName.String(labels.name(identity.Name)), keySource.String(labels.source(identity.Source))))
}
