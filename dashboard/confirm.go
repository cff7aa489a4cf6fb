package dashboard

import (
	"net/http"
	"strconv"

	"github.com/letterbox-go/letterbox/inbox"
)

// fact is a line of a list.
type fact struct{ Label, Value string }

// question is a page that asks before something is done.
type question struct {
	Heading string
	Text    []string
	Facts   []fact
	Button  string
	Danger  bool
	Fields  []fact // hidden, sent along
	Back    string // relative to the overview
	Rate    int    // asks for a rate when not 0
	Count   int64  // how many messages it is about, when Counted
	Counted bool
}

func (d *dashboard) ask(w http.ResponseWriter, r *http.Request, v visitor, section string, q question) error {
	return d.show(w, r, v, http.StatusOK, page{View: "confirm", Title: q.Heading, Section: section, Body: q})
}

// askAbout asks about one message.
func (d *dashboard) askAbout(w http.ResponseWriter, r *http.Request, v visitor, q question) error {
	view, _, err := d.messageView(r)
	if err != nil {
		return err
	}
	q.Facts = messageFacts(view.Summary)
	q.Back = messagePath(view.ID)
	return d.ask(w, r, v, "messages", q)
}

func messageFacts(m inbox.Summary) []fact {
	facts := []fact{
		{"Message", "#" + strconv.FormatInt(m.ID, 10)},
		{"Name", m.Name},
		{"Message id", m.MessageID},
	}
	for _, f := range []fact{{"Source", m.Source}, {"Ordering key", m.OrderingKey}, {"Last error", cut(300, m.LastError)}} {
		if f.Value != "" {
			facts = append(facts, f)
		}
	}
	return facts
}

func messagePath(id int64) string { return "messages/" + strconv.FormatInt(id, 10) }

func (d *dashboard) askRetry(w http.ResponseWriter, r *http.Request, v visitor) error {
	return d.askAbout(w, r, v, question{
		Heading: "Retry this message?",
		Text:    []string{"It runs again at once. A dead message begins anew, with no attempts; one that waits keeps those it had."},
		Button:  "Retry",
	})
}

func (d *dashboard) askDiscard(w http.ResponseWriter, r *http.Request, v visitor) error {
	return d.askAbout(w, r, v, question{
		Heading: "Discard this message?",
		Text:    []string{"It stays in the history but will never run, and cannot be retried later. If it holds up its ordering key, the key goes on."},
		Button:  "Discard for good",
		Danger:  true,
	})
}

func (d *dashboard) askSkip(w http.ResponseWriter, r *http.Request, v visitor) error {
	key := r.URL.Query().Get("key")
	if key == "" {
		return &refusal{http.StatusBadRequest, "Which ordering key? The address names none."}
	}
	return d.ask(w, r, v, "dead", question{
		Heading: "Skip the dead messages of this key?",
		Text:    []string{"Later messages of the key run without them, so they may run out of order if you retry the dead ones afterwards. The dead ones stay dead."},
		Facts:   []fact{{"Ordering key", key}},
		Button:  "Skip and go on",
		Danger:  true,
		Back:    "dead",
	})
}

func (d *dashboard) askPause(w http.ResponseWriter, r *http.Request, v visitor) error {
	return d.askName(w, r, v, question{
		Heading: "Pause this name?",
		Text:    []string{"No processor starts messages of it until somebody resumes it. What is running finishes; accepting goes on, so a backlog grows."},
		Button:  "Pause",
	})
}

func (d *dashboard) askResume(w http.ResponseWriter, r *http.Request, v visitor) error {
	return d.askName(w, r, v, question{
		Heading: "Resume this name?",
		Text:    []string{"Processors start its messages again within a poll."},
		Button:  "Resume",
	})
}

func (d *dashboard) askName(w http.ResponseWriter, r *http.Request, v visitor, q question) error {
	name := r.URL.Query().Get("name")
	if name == "" {
		return &refusal{http.StatusBadRequest, "Which name? The address names none."}
	}
	q.Facts, q.Back = []fact{{"Name", name}}, "names"
	return d.ask(w, r, v, "names", q)
}
