package dashboard

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/transport/tracecontext"
)

// messageView is all of one message.
type messageView struct {
	inbox.Detail
	Fields     []fact // metadata
	Trace      string
	TraceURL   string
	Size       int // of the payload, in bytes
	HasPayload bool
	Hidden     bool // redaction left nothing
	Shown      *payloadView
	Registered bool
}

// Fingerprint in hexadecimal.
func (m messageView) FingerprintText() string { return hex.EncodeToString(m.Fingerprint) }

// Retryable, Editable and Discardable say which actions make sense.
func (m messageView) Retryable() bool {
	return m.Kind != inbox.Processed && !m.Discarded && m.HasPayload
}
func (m messageView) Editable() bool    { return m.Kind == inbox.Dead && !m.Discarded }
func (m messageView) Discardable() bool { return m.Kind != inbox.Processed && !m.Discarded }

// payloadView is a payload as a page shows it.
type payloadView struct {
	Text     string
	Format   string // "JSON", "text" or "hexadecimal"
	Redacted bool
	Cut      bool
}

// payloadMost is how many bytes of a payload a page shows; the rest is in the
// download.
const payloadMost = 256 << 10

func (d *dashboard) message(w http.ResponseWriter, r *http.Request, v visitor) error {
	view, _, err := d.messageView(r)
	if err != nil {
		return err
	}
	return d.showMessage(w, r, v, view)
}

func (d *dashboard) showMessage(w http.ResponseWriter, r *http.Request, v visitor, view messageView) error {
	p := page{View: "message", Title: "Message " + number(view.ID), Section: "messages", Body: view}
	if view.Kind == inbox.Pending && view.Shown == nil && view.Size <= payloadMost { // each time it is read whole
		p.Refresh = 5
	}
	return d.show(w, r, v, http.StatusOK, p)
}

// messageView reads a message; its Payload is what may be shown.
func (d *dashboard) messageView(r *http.Request) (view messageView, whole bool, err error) {
	id, err := parseID(r.PathValue("id"))
	if err != nil {
		return messageView{}, false, err
	}
	stored, err := d.repo.Get(r.Context(), id)
	if err != nil {
		return messageView{}, false, err
	}
	view = messageView{Size: len(stored.Payload), HasPayload: stored.Payload != nil, Registered: d.repo.Names().Has(stored.Name)}
	view.Detail, whole = d.redacted(stored)
	view.Hidden = view.HasPayload && view.Payload == nil
	for _, key := range slices.Sorted(maps.Keys(view.Metadata)) {
		view.Fields = append(view.Fields, fact{Label: key, Value: view.Metadata[key]})
	}
	if view.Trace = traceOf(stored.Metadata); view.Trace != "" && d.config.TraceURL != "" {
		view.TraceURL = strings.ReplaceAll(d.config.TraceURL, traceMark, view.Trace)
	}
	return view, whole, nil
}

// payload shows a payload to whom asks for it, or sends it as a file.
func (d *dashboard) payload(w http.ResponseWriter, r *http.Request, v visitor) error {
	view, whole, err := d.messageView(r)
	if err != nil {
		return err
	}
	if view.Payload == nil {
		return &refusal{http.StatusNotFound, "There is no payload to show: it was removed, never stored, or is withheld here."}
	}
	d.logLook(r, v, &view)
	if r.PostFormValue("as") == "file" {
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Disposition", fmt.Sprintf(`attachment; filename="message-%d.bin"`, view.ID))
		_, _ = w.Write(view.Payload) // the visitor may be gone
		return nil
	}
	view.Shown = newPayloadView(view.Payload)
	view.Shown.Redacted = !whole
	return d.showMessage(w, r, v, view)
}

// logLook records that somebody saw a payload.
func (d *dashboard) logLook(r *http.Request, v visitor, m *messageView) {
	d.config.Logger.InfoContext(r.Context(), "dashboard: payload shown", "actor", v.actor, "id", m.ID, "name", m.Name)
}

// newPayloadView lays JSON out, leaves other text as it is, and dumps the rest.
func newPayloadView(payload []byte) *payloadView {
	view := &payloadView{Cut: len(payload) > payloadMost}
	if !view.Cut {
		if pretty, ok := layOut(payload); ok {
			view.Text, view.Format = visible(pretty, true), "JSON"
			return view
		}
	}
	shown := payload[:min(len(payload), payloadMost)]
	if view.Cut { // not in the middle of a character
		for i := 0; i < utf8.UTFMax && !utf8.Valid(shown); i++ {
			shown = shown[:len(shown)-1]
		}
	}
	if utf8.Valid(shown) && !bytes.ContainsRune(shown, 0) {
		view.Text, view.Format = visible(string(shown), true), "text"
		return view
	}
	view.Text, view.Format = hex.Dump(shown[:min(len(shown), payloadMost/8)]), "hexadecimal"
	view.Cut = len(payload) > payloadMost/8
	return view
}

// layOut indents JSON; digits and escapes stay as they are.
func layOut(payload []byte) (string, bool) {
	var pretty bytes.Buffer
	if !utf8.Valid(payload) || json.Indent(&pretty, bytes.TrimSpace(payload), "", "  ") != nil {
		return "", false
	}
	return pretty.String(), true
}

// traceOf returns the trace id in metadata, or "".
func traceOf(metadata map[string]string) string {
	if parent := metadata[tracecontext.Traceparent]; tracecontext.Valid(parent) {
		return parent[3:35]
	}
	return ""
}
