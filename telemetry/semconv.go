package telemetry

import "go.opentelemetry.io/otel/attribute"

// The names of the semantic conventions are pinned here and nowhere else, at the
// version of schemaURL. The conventions for messaging are not stable yet: a move
// to a later version is a change for whoever has dashboards, and belongs in the
// changelog.
//
//   - https://github.com/open-telemetry/semantic-conventions/blob/v1.43.0/docs/messaging/messaging-spans.md
//   - https://github.com/open-telemetry/semantic-conventions/blob/v1.43.0/docs/messaging/messaging-metrics.md
//   - https://github.com/open-telemetry/semantic-conventions/blob/v1.43.0/docs/general/recording-errors.md
const schemaURL = "https://opentelemetry.io/schemas/1.43.0"

// Attributes of the conventions.
const (
	keySystem        = attribute.Key("messaging.system")
	keyOperation     = attribute.Key("messaging.operation.name")
	keyOperationType = attribute.Key("messaging.operation.type")
	keyDestination   = attribute.Key("messaging.destination.name")
	keyMessageID     = attribute.Key("messaging.message.id")
	keyBatchCount    = attribute.Key("messaging.batch.message_count")
	keyErrorType     = attribute.Key("error.type")
)

// Their values.
const (
	system          = "letterbox"
	operation       = "process" // the name and the type
	otherErrorType  = "_OTHER"
	messageUnit     = "{message}"
	secondsUnit     = "s"
	processDuration = "messaging.process.duration"
	consumed        = "messaging.client.consumed.messages"
)

// Names of our own, for which there is no convention.
const (
	keyName     = attribute.Key("inbox.name")
	keySource   = attribute.Key("inbox.source")
	keyID       = attribute.Key("inbox.id")
	keyAttempt  = attribute.Key("inbox.attempt")
	keyOutcome  = attribute.Key("inbox.outcome")
	keyInline   = attribute.Key("inbox.inline")
	keyDelay    = attribute.Key("inbox.delay")
	keyStatus   = attribute.Key("inbox.status")
	keySwept    = attribute.Key("inbox.swept.what")
	accepted    = "inbox.accepted"
	duplicates  = "inbox.duplicates"
	mismatches  = "inbox.mismatches"
	retries     = "inbox.retries"
	dead        = "inbox.dead"
	unfinished  = "inbox.unfinished"
	oldestAge   = "inbox.oldest.age"
	claimLength = "inbox.claim.duration"
	swept       = "inbox.swept"
)

// durationBuckets are those that the conventions advise for
// messaging.process.duration, in seconds, and two more for long handlers.
var durationBuckets = []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60}

// claimBuckets begin lower: a claim is one or two statements.
var claimBuckets = []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5}
