package inbox

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/letterbox-go/letterbox/mediator"
)

const (
	maxIdentifier  = 256 // bytes: message id, source, name, ordering key
	maxFingerprint = 64  // bytes
)

// Entry is one message to accept. MessageID and Message are required.
type Entry struct {
	// MessageID identifies the message within its source: what the sender
	// repeats when it sends again. 1 to 256 bytes of valid UTF-8 without
	// control characters, compared byte for byte.
	MessageID string
	// Message is a Go value whose type is registered in the NameMap, or Raw.
	Message any
	// Source is the scope in which MessageID is unique, for example "psp-x" or
	// "kafka:orders.v1". Empty is a scope like any other. At most 256 bytes.
	Source string
	// OrderingKey groups messages that are processed one after another, in the
	// order they were accepted, across sources and names. An unfinished message
	// holds up the later ones; so does a dead one, unless Policy.OnDead says
	// otherwise. Empty: no order. At most 256 bytes.
	OrderingKey string
	// Metadata travels with the message: valid UTF-8, at most
	// Config.MaxMetadata bytes as JSON.
	Metadata map[string]string
	// Due is when processing may start, by the database's clock. Zero, or in
	// the past: now.
	// Years 1970 to 9999.
	Due time.Time
	// Fingerprint stands for the body when a repeat is compared with the first
	// arrival, at most 64 bytes. Nil: SHA-256 of the payload. Empty but not
	// nil: none, then a repeat is never a Mismatch.
	Fingerprint []byte
}

// Raw is a message as it was received: Payload is stored byte for byte, and
// decoded by the codec of Name when it is processed. Name must be registered.
type Raw struct {
	Name    string
	Payload []byte
}

// Identity is what makes a message one message: compared byte for byte, never
// joined into one string.
type Identity struct {
	Source    string
	MessageID string
	Name      string
}

// OutcomeKind is what became of an entry.
type OutcomeKind uint8

const (
	// Stored: the message is new and will be processed.
	Stored OutcomeKind = iota + 1
	// Duplicate: the identity is already there, with the same body as far as
	// the fingerprints tell. Answer as if it had been stored.
	Duplicate
	// Mismatch: the identity is already there with another body. The stored
	// message is untouched. Report it; do not ask the sender to send again.
	Mismatch
)

// String returns "stored", "duplicate" or "mismatch".
func (k OutcomeKind) String() string {
	switch k {
	case Stored:
		return "stored"
	case Duplicate:
		return "duplicate"
	case Mismatch:
		return "mismatch"
	}
	return fmt.Sprintf("OutcomeKind(%d)", uint8(k))
}

// Outcome is what Add and Accept report for each entry, in the order given.
type Outcome struct {
	Kind     OutcomeKind
	Identity Identity
	// ID is the row's number in accept order; 0 unless Kind is Stored.
	ID int64
}

// NewMessageID returns a version 7 UUID (RFC 9562), for callers that are
// themselves the origin of a message. It panics if the system's random source fails.
func NewMessageID() string { return uuid.Must(uuid.NewV7()).String() }

// row is an entry that passed every check, ready to be stored.
type row struct {
	Identity
	former      []string // names it may be stored under already
	orderingKey string
	payload     []byte
	fingerprint []byte // nil: none
	metadata    string // JSON object, "" for none
	due         time.Time
}

// prepare checks and encodes all entries, before any SQL is sent.
func (r *Repository) prepare(entries []Entry) ([]row, error) {
	if len(entries) > r.config.MaxBatch {
		return nil, fmt.Errorf("%w: %d entries, at most %d", ErrBatchTooLarge, len(entries), r.config.MaxBatch)
	}
	rows := make([]row, len(entries))
	size := 0
	for i := range entries {
		if err := r.prepareOne(&rows[i], &entries[i]); err != nil {
			err.Index = i
			return nil, err
		}
		size += len(rows[i].payload)
	}
	if size > r.config.MaxBatchBytes {
		return nil, fmt.Errorf("%w: %d bytes of payload, at most %d", ErrBatchTooLarge, size, r.config.MaxBatchBytes)
	}
	return rows, nil
}

func (r *Repository) prepareOne(row *row, entry *Entry) *EntryError {
	limit := r.config.MaxIdentifier
	for _, check := range []struct {
		field, value string
		empty        bool
	}{
		{"message id", entry.MessageID, false},
		{"source", entry.Source, true},
		{"ordering key", entry.OrderingKey, true},
	} {
		if err := checkIdentifier(check.value, limit, check.empty); err != nil {
			return &EntryError{Field: check.field, Err: err}
		}
	}
	row.Source, row.MessageID, row.orderingKey = entry.Source, entry.MessageID, entry.OrderingKey
	if err := r.encode(row, entry.Message); err != nil {
		return err
	}
	if len(row.payload) > r.config.MaxPayload {
		return &EntryError{Field: "payload", Err: fmt.Errorf("%d bytes: %w of %d", len(row.payload), ErrPayloadTooLarge, r.config.MaxPayload)}
	}
	if err := setFingerprint(row, entry.Fingerprint); err != nil {
		return &EntryError{Field: "fingerprint", Err: err}
	}
	metadata, err := encodeMetadata(entry.Metadata, r.config.MaxMetadata)
	if err != nil {
		return &EntryError{Field: "metadata", Err: err}
	}
	row.metadata = metadata
	if !entry.Due.IsZero() {
		if year := entry.Due.UTC().Year(); year < 1970 || year > 9999 {
			return &EntryError{Field: "due time", Err: errors.New("outside the years 1970 to 9999")}
		}
		row.due = entry.Due
	}
	return nil
}

// encode fills in name and payload.
func (r *Repository) encode(row *row, message any) *EntryError {
	var reg *registration
	switch message := message.(type) {
	case nil:
		return &EntryError{Field: "message", Err: errors.New("nil")}
	case *Raw:
		if message == nil {
			return &EntryError{Field: "message", Err: errors.New("nil")}
		}
		return r.encode(row, *message)
	case Raw:
		if err := checkIdentifier(message.Name, r.config.MaxIdentifier, false); err != nil {
			return &EntryError{Field: "name", Err: err}
		}
		if reg = r.names.forName(message.Name); reg == nil {
			return &EntryError{Field: "name", Err: ErrUnregistered}
		}
		row.payload = message.Payload
	default:
		if reg = r.names.forType(mediator.TypeOf(message)); reg == nil {
			return &EntryError{Field: "message", Err: fmt.Errorf("type %T: %w", message, ErrUnregistered)}
		}
		if v := reflect.ValueOf(message); v.Kind() == reflect.Pointer && v.IsNil() {
			return &EntryError{Field: "message", Err: errors.New("nil")} // JSON would store null
		}
		payload, err := safeEncode(reg.Codec, message)
		if err != nil {
			return &EntryError{Field: "payload", Err: err}
		}
		row.payload = payload
	}
	if row.payload == nil {
		row.payload = []byte{}
	}
	row.Name, row.former = reg.Name, reg.FormerNames
	return nil
}

// safeEncode keeps a panicking Marshal method from ending the caller.
func safeEncode(codec Codec, message any) (payload []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("encoding panicked: %v", r)
		}
	}()
	return codec.Encode(message)
}

func setFingerprint(row *row, given []byte) error {
	switch {
	case len(given) > maxFingerprint:
		return fmt.Errorf("%d bytes, at most %d", len(given), maxFingerprint)
	case len(given) > 0:
		row.fingerprint = given
	case given == nil:
		sum := sha256.Sum256(row.payload)
		row.fingerprint = sum[:]
	}
	return nil
}

func encodeMetadata(metadata map[string]string, limit int) (string, error) {
	if len(metadata) == 0 {
		return "", nil
	}
	for key, value := range metadata {
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			return "", errors.New("invalid UTF-8")
		}
	}
	text, err := json.Marshal(metadata)
	if err != nil {
		return "", err
	}
	if len(text) > limit {
		return "", fmt.Errorf("%d bytes as JSON, at most %d", len(text), limit)
	}
	return string(text), nil
}

// checkIdentifier refuses what a text column, a log line or a comparison could
// change on the way: it never repairs.
func checkIdentifier(s string, limit int, emptyAllowed bool) error {
	switch {
	case s == "" && !emptyAllowed:
		return errors.New("empty")
	case len(s) > limit:
		return fmt.Errorf("%d bytes, at most %d", len(s), limit)
	case !utf8.ValidString(s):
		return errors.New("invalid UTF-8")
	}
	for _, c := range s {
		if isControl(c) {
			return fmt.Errorf("control character %U", c)
		}
	}
	return nil
}

// isControl reports C0, DEL and C1 control characters.
func isControl(c rune) bool { return c < 0x20 || c >= 0x7f && c <= 0x9f }
