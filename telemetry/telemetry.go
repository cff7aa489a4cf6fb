package telemetry

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/trace"

	"github.com/letterbox-go/letterbox/inbox"
)

// observer is the inbox.Observer of this package.
type observer struct {
	config Config
	tracer trace.Tracer
	labels *labels
	meters *meters
}

// New returns an observer for inbox.Config.Observer. It makes a span and the
// metrics of each handler run, when the run's transaction is committed.
//
// The error joins what is wrong with config, and what the MeterProvider says
// about the instruments.
func New(config Config) (inbox.Observer, error) {
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	meters, err := newMeters(config.meter())
	if err != nil {
		return nil, err
	}
	return &observer{config: config, tracer: config.tracer(), labels: newLabels(&config), meters: meters}, nil
}

// Start begins a span for a handler run. Observe ends it, after the commit. A
// run that is rolled back has no observation: its span is never ended, so it is
// never exported, and goes away with the context, which alone holds it.
func (o *observer) Start(ctx context.Context, messages []inbox.Info) context.Context {
	if len(messages) == 0 {
		return ctx
	}
	_, ctx = o.begin(ctx, messages)
	return ctx
}

// Observe records what is now true.
func (o *observer) Observe(ctx context.Context, seen inbox.Observation) {
	switch seen.Kind {
	case inbox.SawStored, inbox.SawDuplicate, inbox.SawMismatch:
		o.meters.accepted(ctx, seen.Kind, o.labels, seen.Message.Identity)
	case inbox.SawClaimed:
		o.meters.claim.Record(ctx, seen.Duration.Seconds())
	case inbox.SawSwept:
		o.meters.swept(ctx, seen)
	case inbox.SawProcessed, inbox.SawFailed, inbox.SawDead, inbox.SawPostponed, inbox.SawInterrupted:
		o.ran(ctx, seen)
	}
}

// ran records one message of a handler run. The messages of a batch handler are
// observed one by one and have the run in common: the first ends its span and
// counts its duration.
func (o *observer) ran(ctx context.Context, seen inbox.Observation) {
	r, ok := ctx.Value(runKey{}).(*run)
	if !ok {
		// It never got as far as a handler: it could not be decoded, say.
		r, ctx = o.begin(ctx, []inbox.Info{seen.Message})
	}
	o.meters.message(ctx, seen, o.labels)
	if r.end(seen, o.labels) && !seen.Began.IsZero() {
		o.meters.run(ctx, seen, o.labels, r.destination)
	}
}

// failed reports that err is a failure and not a verdict such as Postpone.
func failed(seen inbox.Observation) bool {
	return seen.Err != nil && seen.Kind != inbox.SawProcessed && seen.Kind != inbox.SawPostponed
}

var errNoRepository = errors.New("telemetry: Watch needs a repository")
