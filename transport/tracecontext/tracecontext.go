// Package tracecontext carries W3C trace context through the inbox: from the
// request or message that was accepted, in the entry's metadata, to the handler
// that processes it, maybe days later in another process.
//
// The metadata keys are the header names of the standard, so that any tracing
// library can read them with its own propagator. With OpenTelemetry, in a
// handler:
//
//	info, _ := inbox.FromContext(ctx)
//	ctx = otel.GetTextMapPropagator().Extract(ctx, propagation.MapCarrier(info.Metadata))
//
// Trace context is not worth losing a message for: what is malformed is dropped.
// The standard: https://www.w3.org/TR/trace-context/
package tracecontext

import (
	"context"
	"strings"

	"github.com/letterbox-go/letterbox/inbox"
)

// The names of the headers, and of the metadata keys.
const (
	Traceparent = "traceparent"
	Tracestate  = "tracestate"
)

const (
	maxTraceparent = 256
	maxTracestate  = 4096 // the standard asks for at least 512 characters
	maxMembers     = 32
)

// Put sets traceparent and tracestate in metadata, which it makes when it is
// nil, and returns it. A malformed traceparent drops both, a malformed
// tracestate only itself.
func Put(metadata map[string]string, traceparent, tracestate string) map[string]string {
	traceparent, tracestate = strings.Trim(traceparent, " \t"), strings.Trim(tracestate, " \t")
	if !Valid(traceparent) {
		return metadata
	}
	if metadata == nil {
		metadata = map[string]string{}
	}
	metadata[Traceparent] = traceparent
	delete(metadata, Tracestate) // it belonged to another parent
	if ValidState(tracestate) {
		metadata[Tracestate] = tracestate
	}
	return metadata
}

// FromContext returns the trace context of the message in hand. ok is false
// outside the inbox, and for a message that came without.
func FromContext(ctx context.Context) (traceparent, tracestate string, ok bool) {
	info, _ := inbox.FromContext(ctx)
	traceparent = info.Metadata[Traceparent]
	if !Valid(traceparent) {
		return "", "", false
	}
	if tracestate = info.Metadata[Tracestate]; !ValidState(tracestate) {
		tracestate = ""
	}
	return traceparent, tracestate, true
}

// Valid reports that traceparent is well formed: version 00, or a later one that
// begins in the same way.
func Valid(traceparent string) bool {
	if len(traceparent) < 55 || len(traceparent) > maxTraceparent {
		return false
	}
	version, trace, parent, flags := traceparent[:2], traceparent[3:35], traceparent[36:52], traceparent[53:55]
	if traceparent[2] != '-' || traceparent[35] != '-' || traceparent[52] != '-' {
		return false
	}
	if !isHex(version) || !isHex(trace) || !isHex(parent) || !isHex(flags) {
		return false
	}
	if version == "ff" || isZero(trace) || isZero(parent) {
		return false
	}
	if rest := traceparent[55:]; rest != "" {
		return version != "00" && rest[0] == '-' && printable(rest)
	}
	return true
}

// ValidState reports that tracestate is a list of at most 32 members, key=value,
// with no key twice. Empty members are allowed, an empty list is not.
func ValidState(tracestate string) bool {
	if tracestate == "" || len(tracestate) > maxTracestate {
		return false
	}
	keys := map[string]bool{}
	for member := range strings.SplitSeq(tracestate, ",") {
		member = strings.Trim(member, " \t")
		if member == "" {
			continue
		}
		key, value, found := strings.Cut(member, "=")
		if !found || keys[key] || !validKey(key) || !validValue(value) {
			return false
		}
		keys[key] = true
	}
	return len(keys) > 0 && len(keys) <= maxMembers
}

// validKey: a simple key, or tenant@system.
func validKey(key string) bool {
	tenant, system, multi := strings.Cut(key, "@")
	if multi {
		return keyPart(tenant, 241) && keyPart(system, 14) && !isDigit(system[0])
	}
	return keyPart(key, 256) && !isDigit(key[0])
}

func keyPart(s string, limit int) bool {
	if s == "" || len(s) > limit || !isLower(s[0]) && !isDigit(s[0]) {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isLower(c) && !isDigit(c) && strings.IndexByte("_-*/", c) < 0 {
			return false
		}
	}
	return true
}

func validValue(value string) bool {
	return value != "" && len(value) <= 256 && printable(value) && !strings.Contains(value, "=")
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}

func isHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; !isDigit(c) && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func isZero(s string) bool { return strings.Trim(s, "0") == "" }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }
func isLower(c byte) bool  { return c >= 'a' && c <= 'z' }
