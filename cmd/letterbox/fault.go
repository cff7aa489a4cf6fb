package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/letterbox-go/letterbox/inbox"
)

// usageError is a call that cannot work: exit code 2.
type usageError struct {
	err  error
	next string
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// stepError is a failure with the step that comes next.
type stepError struct {
	err  error
	next string
}

func (e *stepError) Error() string { return e.err.Error() }
func (e *stepError) Unwrap() error { return e.err }

var errCritical = errors.New("there are critical findings")

// steps are what to do about the inbox's own errors.
var steps = []struct {
	err  error
	next string
}{
	{inbox.ErrNotFound, "letterbox list shows what is there."},
	{inbox.ErrBusy, "Nothing was changed. Try again in a moment."},
	{inbox.ErrNotRetryable, "letterbox show ID says what became of it."},
	{inbox.ErrNotDiscardable, "letterbox show ID says what became of it."},
	{inbox.ErrPayloadRemoved, "Give it another payload: letterbox edit ID --file FILE."},
	{inbox.ErrSchemaNewer, "Install a newer letterbox."},
	{inbox.ErrMemoryDatabase, "Name a file: file:/path/to/inbox.db."},
	{context.Canceled, "It was interrupted. What was reported as done is done."},
	{context.DeadlineExceeded, "The database did not answer in time. letterbox doctor may say why."},
}

// report writes an error with the next step, and returns the exit code.
func (a *app) report(err error) int {
	if err == nil {
		return exitOK
	}
	code, next := exitFailure, ""
	var usage *usageError
	var step *stepError
	var payload *inbox.PayloadError
	var connect *pgconn.ConnectError
	switch {
	case errors.As(err, &usage):
		code, next = exitUsage, usage.next
	case errors.As(err, &step):
		next = step.next
	case errors.As(err, &payload):
		next = "Correct the payload. --force accepts text that is not JSON."
	case errors.As(err, &connect):
		next = "Check --database-url or DATABASE_URL, and that the server is running."
	default:
		for _, s := range steps {
			if errors.Is(err, s.err) {
				next = s.next
				break
			}
		}
	}
	var lines []string
	for line := range strings.SplitSeq(a.redact(err.Error()), "\n") {
		lines = append(lines, inert(strings.TrimSpace(line)))
	}
	fmt.Fprintf(a.stderr, "letterbox: %s\n", strings.Join(lines, "\n  "))
	if next != "" {
		fmt.Fprintln(a.stderr, next)
	}
	return code
}

// redact takes the password out of a text.
func (a *app) redact(text string) string {
	if a.secret == "" {
		return text
	}
	return strings.ReplaceAll(text, a.secret, "*****")
}

// usage makes a usage error of a command.
func usage(cmd *cobra.Command, format string, args ...any) error {
	return &usageError{err: fmt.Errorf(format, args...), next: "See " + cmd.CommandPath() + " --help."}
}
