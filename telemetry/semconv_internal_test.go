package telemetry

import (
	"testing"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/semconv/v1.43.0/messagingconv"
)

func TestTheNamesAreThoseOfTheConventions(t *testing.T) {
	t.Parallel()
	for ours, theirs := range map[attribute.Key]attribute.Key{
		keySystem:        semconv.MessagingSystemKey,
		keyOperation:     semconv.MessagingOperationNameKey,
		keyOperationType: semconv.MessagingOperationTypeKey,
		keyDestination:   semconv.MessagingDestinationNameKey,
		keyMessageID:     semconv.MessagingMessageIDKey,
		keyBatchCount:    semconv.MessagingBatchMessageCountKey,
		keyErrorType:     semconv.ErrorTypeKey,
	} {
		if ours != theirs {
			t.Errorf("%s is %s", ours, theirs)
		}
	}
	for ours, theirs := range map[string]string{
		schemaURL:       semconv.SchemaURL,
		otherErrorType:  semconv.ErrorTypeOther.Value.AsString(),
		operation:       semconv.MessagingOperationTypeProcess.Value.AsString(),
		processDuration: messagingconv.ProcessDuration{}.Name(),
		consumed:        messagingconv.ClientConsumedMessages{}.Name(),
		secondsUnit:     messagingconv.ProcessDuration{}.Unit(),
		messageUnit:     messagingconv.ClientConsumedMessages{}.Unit(),
	} {
		if ours != theirs {
			t.Errorf("%s is %s", ours, theirs)
		}
	}
}
