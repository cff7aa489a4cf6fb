package httpinbox

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
)

// checkHeader refuses by the header alone, so that no body is read in vain.
func (h *handler[T]) checkHeader(r *http.Request) error {
	contentType, err := single(r, "Content-Type")
	if err != nil {
		return problem(http.StatusBadRequest, codeMediaType, "%v", err)
	}
	if err := h.checkMediaType(contentType); err != nil {
		envelope, ok := h.config.Identify.(enveloper)
		mediaType, params, parseErr := mime.ParseMediaType(contentType)
		if !ok || parseErr != nil || !utf8Charset(params) || !envelope.envelope(mediaType) {
			return err
		}
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return problem(http.StatusUnsupportedMediaType, codeMediaType, "the body must not be compressed").with("Accept-Encoding", "identity")
	}
	if early, ok := h.config.Identify.(preflighter); ok {
		return early.preflight(r)
	}
	return nil
}

func (h *handler[T]) checkMediaType(contentType string) error {
	mediaType, params, err := mime.ParseMediaType(contentType)
	if err == nil && slices.Contains(h.config.MediaTypes, mediaType) && utf8Charset(params) {
		return nil
	}
	accepted := strings.Join(h.config.MediaTypes, ", ")
	return problem(http.StatusUnsupportedMediaType, codeMediaType, "the media type must be %s, in UTF-8", accepted).with("Accept", accepted)
}

// utf8Charset lets an explicit charset pass when it is what the codec reads.
func utf8Charset(params map[string]string) bool {
	charset, given := params["charset"]
	return !given || strings.EqualFold(charset, "utf-8") || strings.EqualFold(charset, "us-ascii")
}

// bounded returns a context for the work on a request that is there as a whole.
// It does not end with the connection: net/http takes a client that closes its
// sending side for one that is gone, and breaking a statement off would cost
// the database connection, to no use for anybody.
func bounded(r *http.Request, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout < 0 {
		return r.Context(), func() {}
	}
	return context.WithTimeout(context.WithoutCancel(r.Context()), timeout)
}

// readBody reads all of it, or none counts: a client that goes away in the
// middle has sent nothing.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	tooLarge := problem(http.StatusRequestEntityTooLarge, codeTooLarge, "the body is larger than %d bytes", limit)
	if r.ContentLength > limit {
		return nil, tooLarge
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var over *http.MaxBytesError
	switch {
	case err == nil:
		return body, nil
	case errors.As(err, &over):
		return nil, tooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, problem(http.StatusRequestTimeout, codeBody, "the body did not arrive in time")
	}
	return nil, problem(http.StatusBadRequest, codeBody, "the body is incomplete")
}
