package dashboard

import (
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
)

// filterForm is a filter as it is typed, and what it means.
type filterForm struct {
	Status, Name, Source, Key, ID, After, Before, Error string
	Filter                                              inbox.Filter
}

// statuses are the choices of a list, in their order.
var statuses = []struct{ Value, Label string }{
	{"", "All"},
	{"pending", "Pending"},
	{"failing", "Failing"},
	{"parked", "Parked"},
	{"dead", "Dead"},
	{"discarded", "Discarded"},
	{"processed", "Processed"},
}

// parseFilter reads a filter from a query. What is not understood is a refusal,
// and never a wider filter.
func parseFilter(values url.Values) (filterForm, error) {
	f := filterForm{
		Status: values.Get("status"), Name: values.Get("name"), Source: values.Get("source"), Key: values.Get("key"),
		ID: values.Get("id"), After: values.Get("after"), Before: values.Get("before"), Error: values.Get("error"),
	}
	f.Filter = inbox.Filter{Name: f.Name, Source: f.Source, OrderingKey: f.Key, MessageID: f.ID, ErrorContains: f.Error}
	for _, value := range []string{f.Name, f.Source, f.Key, f.ID, f.Error} {
		if visible(value, false) != value && strings.ContainsFunc(value, func(r rune) bool { return r < 0x20 || r >= 0x7f && r < 0xa0 || r == '\uFFFD' }) {
			return f, &refusal{http.StatusBadRequest, "The filter contains control characters, which no message has in these fields."}
		}
	}
	switch f.Status {
	case "":
	case "pending":
		f.Filter.Status = inbox.Pending
	case "failing":
		f.Filter.Failing = true
	case "parked":
		f.Filter.Parked = true
	case "dead":
		f.Filter.Status = inbox.Dead
	case "discarded":
		f.Filter.Discarded = true
	case "processed":
		f.Filter.Status = inbox.Processed
	default:
		return f, &refusal{http.StatusBadRequest, "The filter names a status that does not exist."}
	}
	var err error
	if f.Filter.ReceivedAfter, err = parseTime(f.After); err == nil {
		f.Filter.ReceivedBefore, err = parseTime(f.Before)
	}
	if err != nil {
		return f, &refusal{http.StatusBadRequest, "A time in the filter is not understood. Write it as 2006-01-02T15:04 in UTC, or as RFC 3339."}
	}
	return f, nil
}

// parseTime reads what a date field or a program writes; without a zone it is UTC.
func parseTime(text string) (t time.Time, err error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", time.DateOnly} {
		if t, err = time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, err
}

// values is the query that parseFilter reads.
func (f filterForm) values() url.Values {
	values := url.Values{}
	for _, field := range []struct{ key, value string }{
		{"status", f.Status},
		{"name", f.Name},
		{"source", f.Source},
		{"key", f.Key},
		{"id", f.ID},
		{"after", f.After},
		{"before", f.Before},
		{"error", f.Error},
	} {
		if field.value != "" {
			values.Set(field.key, field.value)
		}
	}
	return values
}

// Query is values in an address.
func (f filterForm) Query() template.URL { return template.URL(f.values().Encode()) }

// With is Query with another status.
func (f filterForm) With(status string) template.URL {
	f.Status = status
	return f.Query()
}

// From is Query for the page after the given place.
func (f filterForm) From(place int64) template.URL {
	values := f.values()
	values.Set("from", strconv.FormatInt(place, 10))
	return template.URL(values.Encode())
}

// Narrow reports a filter beyond the status.
func (f filterForm) Narrow() bool {
	f.Status = ""
	return len(f.values()) > 0
}

// Retryable reports that all that match could be retried at once.
func (f filterForm) Retryable() bool { return f.Status == "dead" }

// Words describes the filter, for a page that asks.
func (f filterForm) Words() []fact {
	var facts []fact
	for _, field := range []fact{
		{Label: "Name", Value: f.Name},
		{Label: "Source", Value: f.Source},
		{Label: "Ordering key", Value: f.Key},
		{Label: "Message id", Value: f.ID},
		{Label: "Received from", Value: timeWords(f.Filter.ReceivedAfter)},
		{Label: "Received before", Value: timeWords(f.Filter.ReceivedBefore)},
		{Label: "Error contains", Value: f.Error},
	} {
		if field.Value != "" {
			facts = append(facts, field)
		}
	}
	return facts
}

func timeWords(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}
