package inbox

import (
	"errors"
	"fmt"
)

var (
	// ErrBusy is returned by operator verbs when a handler, or another
	// operator, holds the message for longer than two seconds. Nothing was
	// changed: try again later.
	ErrBusy = errors.New("inbox: somebody is working on the message: try again later")

	// ErrNotRetryable is returned by Retry and EditAndRetry for a message that is
	// processed or discarded, and by EditAndRetry for one that is not dead.
	ErrNotRetryable = errors.New("inbox: the message cannot be retried")

	// ErrNotDiscardable is returned by Discard for a message that is processed
	// or discarded already.
	ErrNotDiscardable = errors.New("inbox: the message cannot be discarded")

	// ErrPayloadRemoved is returned by Retry for a message whose payload is
	// gone. EditAndRetry can give it another.
	ErrPayloadRemoved = errors.New("inbox: the payload of the message was removed: edit it to retry")
)

// PayloadError is returned by EditAndRetry for a payload that the message's
// codec refuses, that is too large, or, where the name is not registered, that
// is not JSON. Nothing was changed.
type PayloadError struct {
	Name string // of the message
	Err  error
}

// Error says what is wrong. It may quote the codec, and with it the payload.
func (e *PayloadError) Error() string {
	return fmt.Sprintf("inbox: payload of %q: %v", e.Name, e.Err)
}

// Unwrap returns the reason.
func (e *PayloadError) Unwrap() error { return e.Err }
