package dashboard

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/letterbox-go/letterbox/inbox"
)

// editView is the form of an edit, or the question before it is done.
type editView struct {
	Message    messageView
	Text       string // in the form
	Was        string // fingerprint of the payload that is replaced
	Redacted   bool   // the form begins empty
	Binary     bool   // so does it for what is no text
	Problem    string
	CanForce   bool // the name is not registered here
	Force      bool
	Diff       []diffLine
	DiffMore   bool
	LaidOut    bool   // both sides are JSON, shown indented
	Payload    string // the new one, in base64: fields of a form change line ends
	Size       int
	Unchanged  bool
	Confirming bool
}

// edit has three steps, all of them POST, for a payload is shown: the form, the
// question with what would change, the deed.
func (d *dashboard) edit(w http.ResponseWriter, r *http.Request, v visitor) error {
	if err := r.ParseForm(); err != nil {
		return badForm(err)
	}
	id, err := parseID(r.PathValue("id"))
	if err != nil {
		return err
	}
	stored, err := d.repo.Get(r.Context(), id)
	if err != nil {
		return err
	}
	message, whole, err := d.messageView(r)
	if err != nil {
		return err
	}
	view := editView{
		Message: message, Was: digest(stored.Payload), Redacted: !whole || message.Hidden,
		CanForce: !message.Registered, Force: r.PostForm.Get("force") == "yes",
	}
	if !message.Editable() {
		return fmt.Errorf("%w: it is not dead", inbox.ErrNotRetryable)
	}
	switch r.PostForm.Get("step") {
	case "":
		return d.editForm(w, r, v, view)
	case "check":
		return d.editQuestion(w, r, v, view, restoreLineEnds(r.PostForm.Get("payload"), stored.Payload))
	case "again":
		text, err := base64.StdEncoding.DecodeString(r.PostForm.Get("encoded"))
		if err != nil {
			return badForm(err)
		}
		view.Text = string(text)
		return d.showEdit(w, r, v, http.StatusOK, view)
	case "save":
		return d.editSave(w, r, v, view)
	}
	return badForm(nil)
}

func badForm(error) error {
	return &refusal{http.StatusBadRequest, "The form was not understood. Go back and try again."}
}

// editForm shows the payload to be edited; what is redacted must not be saved
// again as it is shown, so that form begins empty.
func (d *dashboard) editForm(w http.ResponseWriter, r *http.Request, v visitor, view editView) error {
	d.logLook(r, v, &view.Message)
	view.Binary = !editable(view.Message.Payload)
	if !view.Redacted && !view.Binary {
		view.Text = string(view.Message.Payload)
	}
	return d.showEdit(w, r, v, http.StatusOK, view)
}

// editable reports that a form can carry the text.
func editable(payload []byte) bool {
	return utf8.Valid(payload) && !bytes.ContainsFunc(payload, func(r rune) bool {
		return unseen(r) && r != '\n' && r != '\t' && r != '\r'
	})
}

// editQuestion shows what would change, or what is wrong with it.
func (d *dashboard) editQuestion(w http.ResponseWriter, r *http.Request, v visitor, view editView, payload []byte) error {
	if problem := d.checkPayload(view.Message.Name, payload, view.Force); problem != "" {
		view.Problem, view.Text = problem, string(payload)
		return d.showEdit(w, r, v, http.StatusUnprocessableEntity, view)
	}
	before, after := string(view.Message.Payload), string(payload)
	if a, ok := layOut(view.Message.Payload); ok {
		if b, ok := layOut(payload); ok {
			before, after, view.LaidOut = a, b, true
		}
	}
	view.Diff, view.DiffMore = diff(before, after)
	view.Unchanged = digest(payload) == view.Was
	view.Payload, view.Size, view.Confirming = base64.StdEncoding.EncodeToString(payload), len(payload), true
	return d.showEdit(w, r, v, http.StatusOK, view)
}

// editSave does it, if the payload is still the one that was compared.
func (d *dashboard) editSave(w http.ResponseWriter, r *http.Request, v visitor, view editView) error {
	payload, err := base64.StdEncoding.DecodeString(r.PostForm.Get("encoded"))
	if err != nil {
		return badForm(err)
	}
	if r.PostForm.Get("was") != view.Was {
		view.Problem, view.Text = "Somebody else has changed the payload meanwhile. Compare again.", string(payload)
		return d.showEdit(w, r, v, http.StatusConflict, view)
	}
	if err := d.repo.EditAndRetry(r.Context(), view.Message.ID, payload, inbox.EditOptions{Force: view.Force}); err != nil {
		return err
	}
	return redirect(w, v, messagePath(view.Message.ID)+"?done=edit")
}

func (d *dashboard) showEdit(w http.ResponseWriter, r *http.Request, v visitor, status int, view editView) error {
	return d.show(w, r, v, status, page{View: "edit", Title: "Edit and retry", Section: "messages", Body: view})
}

// checkPayload says why the message could not have this payload, or nothing.
// EditAndRetry checks once more; it also knows the size limit.
func (d *dashboard) checkPayload(name string, payload []byte, force bool) (problem string) {
	defer func() {
		if v := recover(); v != nil {
			problem = fmt.Sprintf("decoding panicked: %v", v)
		}
	}()
	if d.repo.Names().Has(name) {
		if _, err := d.repo.Names().Decode(name, payload); err != nil {
			return err.Error()
		}
		return ""
	}
	if !force && !json.Valid(payload) {
		return "This program does not know the name, so it can only tell that the text is not JSON. If that is right, allow it below."
	}
	return ""
}

// restoreLineEnds undoes what a form does to line ends: they become those that
// the stored payload has throughout, else "\n".
func restoreLineEnds(text string, stored []byte) []byte {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	if n := bytes.Count(stored, []byte("\r\n")); n > 0 && n == bytes.Count(stored, []byte("\n")) {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	return []byte(text)
}

// digest stands for a payload in a form.
func digest(payload []byte) string {
	sum := sha256.Sum256(payload)
	return hex.EncodeToString(sum[:])
}
