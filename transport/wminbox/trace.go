package wminbox

import (
	"github.com/ThreeDotsLabs/watermill/message"
)

const (
	traceParent = "traceparent"
	traceState  = "tracestate"

	maxTraceState = 512 // bytes a vendor has to carry at least
)

// traceContext returns the trace context of a message, nil when there is none or
// it is malformed: a broken header must not cost the message.
// https://www.w3.org/TR/trace-context/
func traceContext(metadata message.Metadata) map[string]string {
	parent := lookup(metadata, traceParent)
	if !validTraceParent(parent) {
		return nil
	}
	kept := map[string]string{traceParent: parent}
	if state := lookup(metadata, traceState); state != "" && len(state) <= maxTraceState && printable(state) {
		kept[traceState] = state
	}
	return kept
}

// validTraceParent checks version-traceid-parentid-flags, where later versions
// may append further fields.
func validTraceParent(s string) bool {
	if len(s) < 55 || len(s) > 256 || s[2] != '-' || s[35] != '-' || s[52] != '-' || !printable(s) {
		return false
	}
	version := s[:2]
	if !lowerHex(version) || version == "ff" || version == "00" && len(s) != 55 || len(s) > 55 && s[55] != '-' {
		return false
	}
	return lowerHex(s[3:35]) && !zeros(s[3:35]) && lowerHex(s[36:52]) && !zeros(s[36:52]) && lowerHex(s[53:55])
}

func lowerHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func zeros(s string) bool {
	for i := range len(s) {
		if s[i] != '0' {
			return false
		}
	}
	return true
}

// printable reports ASCII without control characters, tab excepted.
func printable(s string) bool {
	for i := range len(s) {
		if c := s[i]; c != '\t' && (c < 0x20 || c > 0x7e) {
			return false
		}
	}
	return true
}
