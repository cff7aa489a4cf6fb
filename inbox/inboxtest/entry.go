package inboxtest

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
)

var entryCases = []Case{
	{
		Name: "a bad entry is named and nothing of its call is stored",
		Rule: "A typed error with the index, before any SQL, and an untouched transaction.",
		Body: badEntries,
	},
	{
		Name: "a batch over the limits is refused",
		Rule: "Over 10,000 entries or 16 MiB in one call: a typed error before any SQL.",
		Body: largeBatches,
	},
	{
		Name: "a batch of 10,000 entries is stored",
		Rule: "10,000 entries fit in one call.",
		Body: largestBatch,
	},
}

// unregisteredJob is known to no map.
type unregisteredJob struct{ ID string }

// unencodable is registered, and JSON cannot carry it.
type unencodable struct{ N float64 }

// panicking is registered, and panics when it is encoded.
type panicking struct{ N int }

func (panicking) MarshalJSON() ([]byte, error) { panic("boom") }

type badEntry struct {
	name  string
	entry inbox.Entry
	field string
	is    error // nil: any
}

// badTexts cannot be stored as they are, or would become equal to others.
var badTexts = map[string]string{
	"a NUL":                   "a\x00b",
	"a NUL at the end":        "ab\x00",
	"a line feed":             "a\nb",
	"a tab":                   "a\tb",
	"an escape":               "a\x1bb",
	"a unit separator":        "a\x1fb",
	"a DEL":                   "a\x7fb",
	"the first C1 control":    "a\u0080b",
	"a next line":             "a\u0085b",
	"the last C1 control":     "a\u009fb",
	"a stray byte":            "id-\xff",
	"another stray byte":      "id-\xfe",
	"half a character":        "caf\xc3",
	"an overlong NUL":         "a\xc0\x80",
	"an encoded surrogate":    "a\xed\xa0\x80",
	"257 bytes":               strings.Repeat("x", 257),
	"257 bytes of characters": strings.Repeat("é", 128) + "x",
}

func badEntryList() []badEntry {
	var bad []badEntry
	for what, text := range badTexts {
		bad = append(bad,
			badEntry{"message id with " + what, inbox.Entry{MessageID: text, Message: Job{}}, "message id", nil},
			badEntry{"source with " + what, inbox.Entry{MessageID: "x", Source: text, Message: Job{}}, "source", nil},
			badEntry{"ordering key with " + what, inbox.Entry{MessageID: "x", OrderingKey: text, Message: Job{}}, "ordering key", nil},
			badEntry{"name with " + what, inbox.Entry{MessageID: "x", Message: inbox.Raw{Name: text}}, "name", nil})
	}
	message := func(name string, message any, field string, is error) {
		bad = append(bad, badEntry{name, inbox.Entry{MessageID: "x", Message: message}, field, is})
	}
	message("an unregistered type", unregisteredJob{}, "message", inbox.ErrUnregistered)
	message("a pointer to a pointer", new(*Job), "message", inbox.ErrUnregistered)
	message("an unregistered name", inbox.Raw{Name: "nobody"}, "name", inbox.ErrUnregistered)
	message("a name in other case", inbox.Raw{Name: "JOB"}, "name", inbox.ErrUnregistered)
	message("no name", inbox.Raw{}, "name", nil)
	message("no message", nil, "message", nil)
	message("a nil pointer", (*Job)(nil), "message", nil)
	message("a nil raw message", (*inbox.Raw)(nil), "message", nil)
	message("a payload over the limit", inbox.Raw{Name: "job", Payload: make([]byte, 1<<20+1)}, "payload", inbox.ErrPayloadTooLarge)
	message("an encoded payload over the limit", Job{ID: strings.Repeat("x", 1<<20)}, "payload", inbox.ErrPayloadTooLarge)
	message("a value the codec refuses", unencodable{math.NaN()}, "payload", nil)
	message("a value whose encoding panics", panicking{}, "payload", nil)

	rest := func(name string, entry inbox.Entry, field string) {
		entry.MessageID, entry.Message = "x", Job{}
		bad = append(bad, badEntry{name, entry, field, nil})
	}
	rest("a due time before 1970", inbox.Entry{Due: time.Date(1969, 12, 31, 23, 59, 59, 0, time.UTC)}, "due time")
	rest("a due time before 1970 elsewhere", inbox.Entry{Due: time.Date(1970, 1, 1, 0, 0, 0, 0, time.FixedZone("", 3600))}, "due time")
	rest("a due time after 9999", inbox.Entry{Due: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}, "due time")
	rest("a fingerprint of 65 bytes", inbox.Entry{Fingerprint: make([]byte, 65)}, "fingerprint")
	rest("a metadata key of invalid UTF-8", inbox.Entry{Metadata: map[string]string{"\xff": ""}}, "metadata")
	rest("a metadata value of invalid UTF-8", inbox.Entry{Metadata: map[string]string{"k": "\xff"}}, "metadata")
	rest("metadata over the limit", inbox.Entry{Metadata: map[string]string{"k": strings.Repeat("x", 64<<10)}}, "metadata")
	bad = append(bad, badEntry{"no message id", inbox.Entry{Message: Job{}}, "message id", nil})
	return bad
}

func badEntries(t *testing.T, e *Env) {
	inbox.Register[unencodable](e.Names, "unencodable")
	inbox.Register[panicking](e.Names, "panicking")
	repo, seen := e.watched(t, inbox.Config{})
	check := func(call string, bad badEntry, index int, err error) {
		t.Helper()
		var typed *inbox.EntryError
		switch {
		case !errors.As(err, &typed):
			t.Errorf("%s: %s says %v", bad.name, call, err)
		case typed.Index != index || typed.Field != bad.field || typed.Err == nil:
			t.Errorf("%s: %s names entry %d, field %q, want entry %d, field %q", bad.name, call, typed.Index, typed.Field, index, bad.field)
		case bad.is != nil && !errors.Is(err, bad.is):
			t.Errorf("%s: %s says %v, want %v", bad.name, call, err, bad.is)
		}
	}
	list := badEntryList()
	for _, bad := range list {
		_, err := repo.Accept(t.Context(), []inbox.Entry{bad.entry})
		check("Accept", bad, 0, err)
	}
	e.begun(t, func(tx bun.Tx) {
		for i, bad := range list {
			entries := e.Entries("of a bad call", "of a bad call too")
			entries = append(entries, bad.entry, e.Entries("and this one")[0], bad.entry)
			_, err := repo.Add(t.Context(), tx, entries)
			check("Add", bad, 2, err)
			if i == 0 { // the rest of the transaction commits
				if _, err := e.Repo.Add(t.Context(), tx, e.Entries("good")); err != nil {
					t.Fatal(err)
				}
			}
		}
		if texts := seen.sent(""); len(texts) != 0 {
			t.Errorf("sent %q", texts)
		}
		if _, err := e.Repo.Add(t.Context(), tx, e.Entries("good too")); err != nil {
			t.Errorf("the transaction is not usable any more: %v", err)
		}
	})
	if n := e.messages(t); n != 2 {
		t.Errorf("%d messages, want the two good ones", n)
	}
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
	e.Expect(t, "good", Processed, 0)
	e.Expect(t, "good too", Processed, 0)
}

func largeBatches(t *testing.T, e *Env) {
	repo, seen := e.watched(t, inbox.Config{})
	half := inbox.Raw{Name: "job", Payload: make([]byte, 1<<20)}
	var heavy []inbox.Entry
	for range 17 {
		heavy = append(heavy, inbox.Entry{MessageID: inbox.NewMessageID(), Message: half})
	}
	for name, entries := range map[string][]inbox.Entry{"10,001 entries": make([]inbox.Entry, 10_001), "17 MiB": heavy} {
		if _, err := repo.Accept(t.Context(), entries); !errors.Is(err, inbox.ErrBatchTooLarge) {
			t.Errorf("Accept of %s: %v", name, err)
		}
		e.begun(t, func(tx bun.Tx) {
			if _, err := repo.Add(t.Context(), tx, entries); !errors.Is(err, inbox.ErrBatchTooLarge) {
				t.Errorf("Add of %s: %v", name, err)
			}
		})
	}
	small := e.NewRepository(t, inbox.Config{MaxBatch: 2, MaxBatchBytes: 20, MaxPayload: 15})
	if _, err := small.Accept(t.Context(), e.Entries("a", "b", "c")); !errors.Is(err, inbox.ErrBatchTooLarge) {
		t.Errorf("three entries where two are allowed: %v", err)
	}
	if _, err := small.Accept(t.Context(), e.Entries("a", "bb")); !errors.Is(err, inbox.ErrBatchTooLarge) {
		t.Errorf("20 bytes and more where 20 are allowed: %v", err)
	}
	if _, err := small.Accept(t.Context(), e.Entries("a-little-longer")); !errors.Is(err, inbox.ErrPayloadTooLarge) {
		t.Errorf("a payload over the limit that is configured: %v", err)
	}
	if texts := seen.sent(""); len(texts) != 0 {
		t.Errorf("sent %d statements", len(texts))
	}
	if n := e.messages(t); n != 0 {
		t.Errorf("%d messages", n)
	}
}

func largestBatch(t *testing.T, e *Env) {
	ids := make([]string, 10_000)
	for i := range ids {
		ids[i] = inbox.NewMessageID()
	}
	e.Accept(t, ids...)
	if n := e.messages(t); n != len(ids) {
		t.Errorf("%d messages", n)
	}
	outcomes, err := e.Repo.Accept(t.Context(), e.Entries(ids...))
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range outcomes {
		if o.Kind != inbox.Duplicate || o.Identity.MessageID != ids[i] {
			t.Fatalf("entry %d, sent again, is %v with the id %s", i, o.Kind, o.Identity.MessageID)
		}
	}
}
