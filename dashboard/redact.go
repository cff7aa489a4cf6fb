package dashboard

import (
	"bytes"
	"maps"

	"github.com/letterbox-go/letterbox/inbox"
)

// redacted is a message as it may be shown, and whether its payload is complete.
func (d *dashboard) redacted(m inbox.Detail) (shown inbox.Detail, whole bool) {
	if d.config.Redact == nil {
		return m, true
	}
	shown = m
	shown.Payload, shown.Metadata = bytes.Clone(m.Payload), maps.Clone(m.Metadata)
	shown.History = append([]inbox.AttemptRecord(nil), m.History...)
	d.config.Redact(&shown)
	whole = bytes.Equal(shown.Payload, m.Payload) && (shown.Payload == nil) == (m.Payload == nil)
	// Only what the hook is for; the rest is not its to change.
	result := m
	result.LastError, result.Metadata, result.RawMetadata, result.Payload = shown.LastError, shown.Metadata, shown.RawMetadata, shown.Payload
	result.History = m.History[:len(m.History):len(m.History)]
	if len(shown.History) <= len(m.History) {
		result.History = shown.History
	}
	return result, whole
}

// redactSummaries does the same to what a list knows.
func (d *dashboard) redactSummaries(list []inbox.Summary) []inbox.Summary {
	if d.config.Redact == nil {
		return list
	}
	for i := range list {
		list[i].LastError = d.redactError(list[i])
	}
	return list
}

// redactError returns the error text of a message as it may be shown.
func (d *dashboard) redactError(m inbox.Summary) string {
	if d.config.Redact == nil {
		return m.LastError
	}
	detail := inbox.Detail{Summary: m}
	d.config.Redact(&detail)
	return detail.LastError
}

// redactKeys does the same to keys that are held up.
func (d *dashboard) redactKeys(keys []inbox.ParkedKey) []inbox.ParkedKey {
	for i := range keys {
		k := &keys[i]
		k.LastError = d.redactError(inbox.Summary{ID: k.ID, Identity: k.Identity, OrderingKey: k.Key, Kind: inbox.Dead, LastError: k.LastError})
	}
	return keys
}
