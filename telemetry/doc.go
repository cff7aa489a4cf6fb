// Package telemetry shows an inbox to OpenTelemetry: a span and metrics for each
// handler run, counts of what is accepted, and gauges of what is left to do.
//
// # Quick start
//
//	observer, err := telemetry.New(telemetry.Config{Names: names, Sources: []string{"psp-x"}})
//	...
//	repo, err := inbox.NewRepository(db, names, inbox.Config{Observer: observer})
//	...
//	stop, err := telemetry.Watch(repo, telemetry.Config{})
//
// The providers and the propagator are the global ones of package otel unless
// Config says otherwise. docs/telemetry.md lists every metric and attribute.
//
// # Spans
//
// A handler run is a span "process <source or name>" of kind consumer. It links
// to the span context that was stored with the message: the transports store the
// sender's, [Inject] stores one's own. It is the parent only with
// Config.ParentFromMessage. A batch handler has one span, with a link for each
// message. Children of the handler's context are children of this span.
//
// A run that is rolled back is not exported. Spans that a handler made itself in
// such a run are: they end before the outcome is known, and have a parent that
// never arrives.
//
// # Labels
//
// Metrics have few series, whatever is sent: names that are not registered and
// sources that are not configured are "other". Message ids are in spans only.
//
// # Guarantee
//
// What is counted is committed. When a process dies between the commit and the
// observation, that one is missing.
//
// # Concurrency
//
// Everything may be used from many goroutines.
//
// # What it does not do
//
// It needs the API modules of OpenTelemetry only; the application brings SDK and
// exporters, as examples/telemetry does. It makes no span for an accept: that is
// part of the request or delivery that brought the message. Payloads, metadata
// and ordering keys are in no span.
package telemetry
