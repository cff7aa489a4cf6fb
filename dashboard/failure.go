package dashboard

import (
	"context"
	"errors"
	"net/http"

	"github.com/letterbox-go/letterbox/inbox"
)

// refusal is an answer with a text for the visitor.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

// answerOf says how an error is answered. The texts of the database stay here:
// they may quote what is stored.
func answerOf(err error) (status int, text string, ours bool) {
	var refused *refusal
	var payload *inbox.PayloadError
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &refused):
		return refused.status, refused.text, false
	case errors.Is(err, inbox.ErrNotFound):
		return http.StatusNotFound, "There is no such message, or no longer: the sweep removes old ones.", false
	case errors.Is(err, inbox.ErrBusy):
		return http.StatusConflict, "A handler, or another operator, has the message in hand. Nothing was changed; try again in a moment.", false
	case errors.Is(err, inbox.ErrNotRetryable):
		return http.StatusConflict, "The message cannot be retried: it is processed or discarded, or not dead any more. Nothing was changed.", false
	case errors.Is(err, inbox.ErrNotDiscardable):
		return http.StatusConflict, "The message cannot be discarded: it is processed or discarded already. Nothing was changed.", false
	case errors.Is(err, inbox.ErrPayloadRemoved):
		return http.StatusConflict, "The payload of this message was removed. Edit it to retry with another one.", false
	case errors.As(err, &payload):
		return http.StatusUnprocessableEntity, "The payload was refused: " + payload.Err.Error(), false
	case errors.As(err, &tooLarge):
		return http.StatusRequestEntityTooLarge, "The request is too large.", false
	case errors.Is(err, inbox.ErrNotMigrated):
		return http.StatusServiceUnavailable, "The tables of the inbox are missing. Migrate the database first.", true
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusServiceUnavailable, "The database took too long to answer. Try again; if it stays so, see what else it is doing.", true
	case errors.Is(err, context.Canceled):
		return http.StatusServiceUnavailable, "The request was given up.", false
	}
	return http.StatusServiceUnavailable, "The database answered with an error. The log of this program says which.", true
}

// fail answers an error, as a page or as JSON.
func (d *dashboard) fail(w http.ResponseWriter, r *http.Request, v visitor, err error) {
	status, text, ours := answerOf(err)
	if ours {
		d.config.Logger.ErrorContext(r.Context(), "dashboard: request failed", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	if isAPI(r) {
		writeProblem(w, status, text)
		return
	}
	body := struct {
		Status int
		Text   string
	}{status, text}
	if err := d.show(w, r, v, status, page{View: "error", Title: http.StatusText(status), Body: body}); err != nil {
		d.config.Logger.ErrorContext(r.Context(), "dashboard: error page failed", "error", err)
		w.WriteHeader(http.StatusInternalServerError)
	}
}
