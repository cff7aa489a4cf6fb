package dashboard

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/letterbox-go/letterbox/inbox"
)

// messagesView is a page of the list.
type messagesView struct {
	Form     filterForm
	Statuses []struct{ Value, Label string }
	Messages []inbox.Summary
	Next     int64 // 0: the end
	Later    bool  // not the first page
}

func (d *dashboard) messages(w http.ResponseWriter, r *http.Request, v visitor) error {
	query := r.URL.Query()
	if typed := strings.TrimPrefix(strings.TrimSpace(query.Get("number")), "#"); typed != "" {
		id, err := parseID(typed)
		if err != nil {
			return err
		}
		return redirect(w, v, "messages/"+strconv.FormatInt(id, 10))
	}
	form, err := parseFilter(query)
	if err != nil {
		return err
	}
	place, err := parsePlace(query.Get("from"))
	if err != nil {
		return err
	}
	list, next, err := d.repo.List(r.Context(), form.Filter, inbox.Page{Before: place, Limit: d.config.PageSize})
	if err != nil {
		return err
	}
	view := messagesView{Form: form, Statuses: statuses, Messages: d.redactSummaries(list), Next: next, Later: place > 0}
	p := page{View: "messages", Title: "Messages", Section: "messages", Body: view}
	if place == 0 {
		p.Refresh = 10
	}
	return d.show(w, r, v, http.StatusOK, p)
}

// parseID reads the number of a message.
func parseID(text string) (int64, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id <= 0 {
		return 0, &refusal{http.StatusNotFound, "A message has a number; this is none."}
	}
	return id, nil
}

// parsePlace reads where a list goes on.
func parsePlace(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	place, err := strconv.ParseInt(text, 10, 64)
	if err != nil || place < 0 {
		return 0, &refusal{http.StatusBadRequest, "The place in the list is not understood. Start from the first page."}
	}
	return place, nil
}
