package main

import (
	"encoding/base64"
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/letterbox-go/letterbox/inbox"
)

// messageJSON is a message as list, show and export write it.
type messageJSON struct {
	ID               int64      `json:"id"`
	Status           string     `json:"status"`
	Name             string     `json:"name"`
	Source           string     `json:"source"`
	MessageID        string     `json:"message_id"`
	OrderingKey      string     `json:"ordering_key,omitempty"`
	Parked           bool       `json:"parked,omitempty"`
	Blocking         bool       `json:"blocking,omitempty"`
	Attempts         int        `json:"attempts"`
	Interruptions    int        `json:"interruptions,omitempty"`
	LastError        string     `json:"last_error,omitempty"`
	ReceivedAt       *time.Time `json:"received_at"`
	Due              *time.Time `json:"due,omitempty"`
	DiedAt           *time.Time `json:"died_at,omitempty"`
	ProcessedAt      *time.Time `json:"processed_at,omitempty"`
	DiscardedAt      *time.Time `json:"discarded_at,omitempty"`
	PayloadRemovedAt *time.Time `json:"payload_removed_at,omitempty"`

	*detailJSON
}

// detailJSON is what lists leave out.
type detailJSON struct {
	BlockedBy   int64           `json:"blocked_by,omitempty"`
	Metadata    json.RawMessage `json:"metadata,omitempty"`
	History     []attemptJSON   `json:"history,omitempty"`
	PayloadSize *int            `json:"payload_bytes,omitempty"`
	// One of the two, when it was asked for: JSON as it is, else base64.
	Payload       json.RawMessage `json:"payload,omitempty"`
	PayloadBase64 *string         `json:"payload_base64,omitempty"`
}

type attemptJSON struct {
	Number    int       `json:"number"`
	StartedAt time.Time `json:"started_at"`
	Seconds   float64   `json:"seconds"`
	Processor string    `json:"processor"`
	Error     string    `json:"error"`
}

// statusOf is the status in a word.
func statusOf(s *inbox.Summary) string {
	switch {
	case s.Discarded:
		return "discarded"
	case s.Parked:
		return "parked"
	case s.Kind == inbox.Pending && s.Attempts > 0:
		return "failing"
	}
	return s.Kind.String()
}

func summaryJSON(s *inbox.Summary) messageJSON {
	status := s.Kind.String()
	if s.Discarded {
		status = "discarded"
	}
	return messageJSON{
		ID: s.ID, Status: status, Name: s.Name, Source: s.Source, MessageID: s.MessageID, OrderingKey: s.OrderingKey,
		Parked: s.Parked, Blocking: s.Blocking, Attempts: s.Attempts, Interruptions: s.Interruptions, LastError: s.LastError,
		ReceivedAt: when(s.ReceivedAt), Due: when(s.Due), DiedAt: when(s.DiedAt), ProcessedAt: when(s.ProcessedAt),
		DiscardedAt: when(s.DiscardedAt), PayloadRemovedAt: when(s.PayloadRemovedAt),
	}
}

func detailsJSON(d *inbox.Detail, payload bool) messageJSON {
	m := summaryJSON(&d.Summary)
	m.detailJSON = &detailJSON{BlockedBy: d.BlockedBy}
	if isJSON([]byte(d.RawMetadata)) {
		m.Metadata = json.RawMessage(d.RawMetadata)
	}
	for _, h := range d.History {
		m.History = append(m.History, attemptJSON{h.Number, h.StartedAt, h.Duration.Seconds(), h.Processor, h.Error})
	}
	if d.Payload == nil {
		return m
	}
	n := len(d.Payload)
	m.PayloadSize = &n
	switch {
	case !payload:
	case isJSON(d.Payload):
		m.Payload = d.Payload
	default:
		text := base64.StdEncoding.EncodeToString(d.Payload)
		m.PayloadBase64 = &text
	}
	return m
}

// isJSON reports that a text may stand in JSON as it is.
func isJSON(text []byte) bool { return utf8.Valid(text) && json.Valid(text) }

func when(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
