package dashboard

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
)

//go:embed openapi.yaml
var description []byte

func (d *dashboard) apiDescription(w http.ResponseWriter, _ *http.Request, _ visitor) error {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(description) // the visitor may be gone
	return nil
}

// writeJSON answers with a value. What a terminal would obey is escaped.
func writeJSON(w http.ResponseWriter, status int, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("dashboard: encode answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(escapeUnseen(text), '\n')) // the visitor may be gone
	return nil
}

// escapeUnseen spells out what encoding/json leaves as it is: DEL, C1 controls
// and marks of direction. They occur only inside strings.
func escapeUnseen(text []byte) []byte {
	if bytes.IndexFunc(text, unseen) < 0 {
		return text
	}
	var out bytes.Buffer
	for _, r := range string(text) { // valid UTF-8: Marshal saw to it
		if unseen(r) {
			fmt.Fprintf(&out, `\u%04x`, r)
		} else {
			out.WriteRune(r)
		}
	}
	return out.Bytes()
}

// writeProblem answers an error as RFC 9457 says.
func writeProblem(w http.ResponseWriter, status int, detail string) {
	text, err := json.Marshal(map[string]any{"title": http.StatusText(status), "status": status, "detail": detail})
	if err != nil {
		text = []byte("{}")
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, _ = w.Write(append(escapeUnseen(text), '\n')) // the visitor may be gone
}

// readJSON reads the body of a request; an empty one leaves order as it is.
func readJSON(r *http.Request, order any) error {
	body, err := io.ReadAll(r.Body)
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return err
	}
	if err != nil {
		return &refusal{http.StatusBadRequest, "The body did not arrive whole."}
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	if media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); media != "application/json" {
		return &refusal{http.StatusUnsupportedMediaType, "The body must be JSON: set Content-Type to application/json."}
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(order); err != nil {
		return &refusal{http.StatusBadRequest, "The body was not understood: " + err.Error()}
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return &refusal{http.StatusBadRequest, "The body holds more than one JSON value."}
	}
	return nil
}
