package httpinbox

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Problem is an error answer as RFC 9457 describes it, and an error value:
// an Identifier, Config.SourceFunc and Config.Entry return one to choose the
// answer themselves.
// https://www.rfc-editor.org/rfc/rfc9457
type Problem struct {
	// Type is a URI that identifies the kind of problem. Empty means
	// about:blank: the status says it all.
	Type string `json:"type,omitempty"`
	// Title is the same for every problem of a type. Default: the text of Status.
	Title string `json:"title"`
	// Status is the HTTP status code. Default 400.
	Status int `json:"status"`
	// Detail explains this occurrence to the sender.
	Detail string `json:"detail,omitempty"`
	// Code is a word for programs, an extension of this package; the package
	// comment lists those that it uses.
	Code string `json:"code,omitempty"`
	// RetryAfter is sent as the header of that name, in whole seconds, at least
	// one. Zero: no such header.
	RetryAfter time.Duration `json:"-"`
	// Header holds further header fields of the answer.
	Header http.Header `json:"-"`
}

// Error shows code and detail.
func (p *Problem) Error() string { return fmt.Sprintf("httpinbox: %s: %s", p.Code, p.Detail) }

func problem(status int, code, format string, args ...any) *Problem {
	return &Problem{Status: status, Code: code, Detail: fmt.Sprintf(format, args...)}
}

func (p *Problem) with(field, value string) *Problem {
	if p.Header == nil {
		p.Header = http.Header{}
	}
	p.Header.Set(field, value)
	return p
}

func (p *Problem) write(w http.ResponseWriter) {
	shown := *p
	if shown.Status == 0 {
		shown.Status = http.StatusBadRequest
	}
	if shown.Title == "" {
		shown.Title = http.StatusText(shown.Status)
	}
	for field, values := range p.Header {
		w.Header()[field] = values
	}
	if p.RetryAfter > 0 {
		w.Header().Set("Retry-After", seconds(p.RetryAfter))
	}
	writeJSON(w, shown.Status, "application/problem+json", shown)
}

// seconds rounds up: nobody should come back too early.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

func writeJSON(w http.ResponseWriter, status int, mediaType string, body any) {
	text, err := json.Marshal(body)
	if err != nil { // strings, numbers and times only: cannot happen
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n'))
}
