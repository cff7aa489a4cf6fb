package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
)

const (
	maxBody         = 1 << 20 // bytes
	bodyReadTimeout = 30 * time.Second
)

// edge stands in front of the routes and sees to what huma leaves to others: a
// path or method that does not exist is problem+json too, and a body that does
// not arrive whole is the client's fault (huma says 500).
func edge(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if handler, pattern := mux.Handler(r); pattern == "" {
			verdict := verdict{header: http.Header{}}
			handler.ServeHTTP(&verdict, r)
			if allow := verdict.header.Get("Allow"); allow != "" {
				w.Header().Set("Allow", allow)
			}
			writeProblem(w, verdict.status, http.StatusText(verdict.status))
			return
		}
		r = r.Clone(r.Context())
		if status, detail := checkMedia(r.Header); status != 0 {
			writeProblem(w, status, detail)
			return
		}
		body, status, detail := readBody(w, r)
		if status != 0 {
			writeProblem(w, status, detail)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		mux.ServeHTTP(w, r)
	})
}

// verdict notes the status and drops the text.
type verdict struct {
	header http.Header
	status int
}

func (v *verdict) Header() http.Header         { return v.header }
func (v *verdict) WriteHeader(status int)      { v.status = status }
func (v *verdict) Write(p []byte) (int, error) { return len(p), nil }

// checkMedia refuses a content coding, and reduces the media type to the form
// that huma compares: names are case-insensitive (RFC 9110, 8.3.1).
func checkMedia(header http.Header) (status int, detail string) {
	if coding := header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return http.StatusUnsupportedMediaType, "no content coding is supported"
	}
	value := header.Get("Content-Type")
	if value == "" {
		return 0, "" // taken for JSON
	}
	media, _, err := mime.ParseMediaType(value)
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
		return http.StatusUnsupportedMediaType, "the media type is malformed"
	}
	header.Set("Content-Type", media)
	return 0, ""
}

// readBody reads all of it, or says how to answer.
func readBody(w http.ResponseWriter, r *http.Request) (body []byte, status int, detail string) {
	connection := http.NewResponseController(w)
	_ = connection.SetReadDeadline(time.Now().Add(bodyReadTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLarge *http.MaxBytesError
	var network net.Error
	switch {
	case err == nil:
		// Or else it would end the request while the database is slow.
		_ = connection.SetReadDeadline(time.Time{})
		return body, 0, ""
	case errors.As(err, &tooLarge):
		return nil, http.StatusRequestEntityTooLarge, "the body is larger than 1 MiB"
	case errors.As(err, &network) && network.Timeout():
		return nil, http.StatusRequestTimeout, "the body took too long"
	}
	return nil, http.StatusBadRequest, "the body did not arrive whole"
}

// writeProblem answers as RFC 9457 says.
func writeProblem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(huma.NewError(status, detail)) // the client may be gone
}

var jsonFormat = huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: unmarshal}

// unmarshal is stricter than encoding/json where that would change data (invalid
// UTF-8), and more lenient where huma reads a body only to check its shape:
// a field that we do not know may hold 1e400.
func unmarshal(data []byte, v any) error {
	if !utf8.Valid(data) {
		return errors.New("invalid UTF-8")
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if err := decoder.Decode(v); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	return nil
}
