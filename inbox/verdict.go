package inbox

import (
	"errors"
	"fmt"
	"time"
)

// maxDelay bounds every delay, so that no due time leaves the range of the column.
const maxDelay = 10 * 365 * 24 * time.Hour

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

type retryAfterError struct {
	delay time.Duration
	err   error
}

func (e *retryAfterError) Error() string { return e.err.Error() }
func (e *retryAfterError) Unwrap() error { return e.err }

type postponeError struct{ delay time.Duration }

func (e *postponeError) Error() string { return fmt.Sprintf("inbox: postponed by %v", e.delay) }

// Permanent is what a handler returns when no retry can help: the message is
// dead at once, with this error. A nil err stays nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

// RetryAfter is what a handler returns to choose the delay before the next
// attempt itself. It is an attempt like any other. Negative delays count as 0,
// and none is longer than ten years. A nil err stays nil.
func RetryAfter(delay time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &retryAfterError{clampDelay(delay), err}
}

// Postpone is what a handler returns when it is too early: the message comes
// back after delay, and this was not an attempt. What the handler wrote is undone.
func Postpone(delay time.Duration) error { return &postponeError{clampDelay(delay)} }

func clampDelay(delay time.Duration) time.Duration { return min(max(delay, 0), maxDelay) }

// IsPermanent reports whether err carries the verdict of Permanent.
func IsPermanent(err error) bool {
	var permanent *permanentError
	return errors.As(err, &permanent)
}
