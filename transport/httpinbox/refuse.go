package httpinbox

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
)

// The values of Problem.Code; the package comment explains them.
const (
	codeMethod      = "method_not_allowed"
	codeMediaType   = "unsupported_media_type"
	codeTooLarge    = "too_large"
	codeBody        = "incomplete_body"
	codeIDMissing   = "message_id_missing"
	codeID          = "message_id_invalid"
	codeSignature   = "signature_invalid"
	codeCloudEvent  = "cloudevent_invalid"
	codeJSON        = "malformed_json"
	codeShape       = "wrong_shape"
	codeName        = "unknown_type"
	codeSource      = "source_refused"
	codeEntry       = "entry_invalid"
	codeMismatch    = "mismatch"
	codeSaturated   = "saturated"
	codeUnavailable = "unavailable"
	codeInternal    = "internal"
	codeNotFound    = "not_found"
)

// asProblem gives an error of the application the status of its place, unless
// it is a Problem already.
func asProblem(err error, status int, code string) error {
	var p *Problem
	if err == nil || errors.As(err, &p) {
		return err
	}
	return &Problem{Status: status, Code: code, Detail: err.Error()}
}

// mismatch reports a repeat with another body, and refuses it where that is
// the rule.
func (h *handler[T]) mismatch(ctx context.Context, outcome inbox.Outcome) error {
	h.config.Logger.WarnContext(ctx, "httpinbox: a known message id came with another body",
		"source", outcome.Identity.Source, "message_id", outcome.Identity.MessageID, "name", outcome.Identity.Name)
	if h.config.Mismatch == MismatchRefuse {
		return problem(http.StatusUnprocessableEntity, codeMismatch, "this message id was used with another body")
	}
	return nil
}

// refuse answers with the problem behind err.
func (h *handler[T]) refuse(w http.ResponseWriter, r *http.Request, err error) {
	var p *Problem
	if !errors.As(err, &p) {
		p = h.problemOf(r.Context(), err)
	}
	p.write(w)
}

// problemOf translates an error of the inbox: an entry that it will never take,
// or a database that should be tried again.
func (h *handler[T]) problemOf(ctx context.Context, err error) *Problem {
	var entry *inbox.EntryError
	switch {
	case errors.Is(err, inbox.ErrPayloadTooLarge), errors.Is(err, inbox.ErrBatchTooLarge):
		return problem(http.StatusRequestEntityTooLarge, codeTooLarge, "the message is larger than the inbox takes")
	case errors.As(err, &entry) && entry.Field == "message id":
		return problem(http.StatusBadRequest, codeID, "%s: %v", entry.Field, entry.Err)
	case errors.As(err, &entry):
		return problem(http.StatusBadRequest, codeEntry, "%s: %v", entry.Field, entry.Err)
	}
	return unavailable(ctx, &h.log, h.config.Logger, h.config.RetryAfter, "accept", err)
}

// logger is the part of slog.Logger that unavailable needs.
type logger interface {
	WarnContext(ctx context.Context, msg string, args ...any)
}

// unavailable is the answer to a failing database. The sender learns nothing
// about the reason; the log does, unless it is that the client is gone.
func unavailable(ctx context.Context, throttle *throttle, log logger, retryAfter time.Duration, operation string, err error) *Problem {
	if !errors.Is(err, context.Canceled) {
		if more, ok := throttle.pass(); ok {
			log.WarnContext(ctx, "httpinbox: the inbox fails; senders are told to come back",
				"operation", operation, "error", err, "suppressed", more)
		}
	}
	p := problem(http.StatusServiceUnavailable, codeUnavailable, "try again later")
	p.RetryAfter = retryAfter
	return p
}

// throttleEvery is how often an outage that lasts is logged.
const throttleEvery = 10 * time.Second

// throttle keeps an outage from filling the log: each refused request is one line.
type throttle struct {
	mu         sync.Mutex
	last       time.Time
	suppressed int
}

func (t *throttle) pass() (suppressed int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := time.Now(); t.last.IsZero() || now.Sub(t.last) >= throttleEvery {
		suppressed, t.suppressed, t.last = t.suppressed, 0, now
		return suppressed, true
	}
	t.suppressed++
	return 0, false
}
