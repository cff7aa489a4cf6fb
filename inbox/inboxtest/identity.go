package inboxtest

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/letterbox-go/letterbox/inbox"
)

var identityCases = []Case{
	{
		Name: "the identity is a tuple",
		Rule: "Source, message id and name are never joined into one string.",
		Body: identityIsATuple,
	},
	{
		Name: "identifiers are compared byte for byte",
		Rule: "Never truncated, repaired, normalised or case-folded, whatever the database's collation.",
		Body: identifiersAreBytes,
	},
	{
		Name: "identifiers of the full length fit, and are told apart by their last byte",
		Rule: "Identifiers are bounded in bytes and never cut: 256 fit, 257 are refused.",
		Body: longIdentifiers,
	},
	{
		Name: "three identifiers of the greatest configurable length fit the index",
		Rule: "The sum is checked at construction against PostgreSQL's index row limit.",
		Body: longestIdentifiers,
	},
}

// OtherJob is a second type, so that one id can have two names.
type OtherJob struct {
	ID string `json:"id"`
}

func identityIsATuple(t *testing.T, e *Env) {
	inbox.Register[OtherJob](e.Names, "other_job")
	entries := []inbox.Entry{
		{Source: "A", MessageID: "42", Message: Job{ID: "A-42"}},
		{Source: "B", MessageID: "42", Message: Job{ID: "B-42"}},
		{Source: "", MessageID: "42", Message: Job{ID: "42"}},
		{Source: "a:b", MessageID: "c", Message: Job{ID: "a:b-c"}},
		{Source: "a", MessageID: "b:c", Message: Job{ID: "a-b:c"}},
		{Source: "", MessageID: "ab", Message: Job{ID: "-ab"}},
		{Source: "a", MessageID: "b", Message: Job{ID: "a-b"}},
		{Source: "a", MessageID: "b", Message: OtherJob{ID: "a-b"}},
		{Source: "job", MessageID: "a", Message: Job{ID: "job-a"}},
		{Source: "a", MessageID: "job", Message: Job{ID: "a-job"}},
	}
	e.acceptTwice(t, entries)
	if n := e.messages(t); n != len(entries) {
		t.Errorf("%d rows for %d identities", n, len(entries))
	}
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
	if n := len(e.Effects(t)); n != len(entries)-1 { // nobody handles OtherJob
		t.Errorf("%d effects", n)
	}
}

// acceptTwice expects distinct entries: all stored, then all duplicates, in one
// batch and one by one.
func (e *Env) acceptTwice(t *testing.T, entries []inbox.Entry) {
	t.Helper()
	stored := make([]inbox.OutcomeKind, len(entries))
	again := make([]inbox.OutcomeKind, len(entries))
	for i := range entries {
		stored[i], again[i] = inbox.Stored, inbox.Duplicate
	}
	outcomes := accepted(t, e.Repo, entries, stored...)
	for i, o := range outcomes {
		if o.Identity.Source != entries[i].Source || o.Identity.MessageID != entries[i].MessageID {
			t.Errorf("outcome %d is that of %+v", i, o.Identity)
		}
	}
	accepted(t, e.Repo, entries, again...)
	for i := range entries {
		accepted(t, e.Repo, entries[i:i+1], inbox.Duplicate)
	}
}

// oddities are valid identifiers that text columns, literals, arrays or
// templates could take for something else.
var oddities = []string{
	"Job-A", "job-a", "JOB-A",
	"caf\u00e9", "cafe\u0301", "\ufb01", "fi", "\u00df", "ss", "\u0130", "i\u0307",
	"trailing", "trailing ", " trailing", "trailing\u00a0", "trailing\u200b", "\ufefftrailing",
	"'", "''", `"`, `""`, `\`, `\\`, `\'`, `\"`, "\u2019",
	"?", "??", "?0", "?id", ":id", "@id", "$1", "$$", "$a$", "%s", "%",
	"{}", "{a,b}", "{", "}", ",", "NULL", "null", `"NULL"`, "()", "[1]", "ROW(1)",
	"--", "/*", "*/", ";", "; DROP TABLE inbox_messages; --", `E'\n'`, `\x41`, `\101`, "A", "x'41'",
	"0", "00", "0x0", "1", "1.0", "1e0", "true", "t", "-", "_", ".", "/", "a/b", "#",
	"{messages}", "{now}", "{queue}", "{rows}", "{list}",
	"\U0001f4ec", "\u2028", "\u202e", "\ufffd", "\uffff", "\U0010ffff",
}

func identifiersAreBytes(t *testing.T, e *Env) {
	var entries []inbox.Entry
	for _, odd := range oddities {
		entries = append(entries,
			inbox.Entry{MessageID: odd, Source: "ids", OrderingKey: odd, Message: Job{ID: "id " + odd}},
			inbox.Entry{MessageID: "sources", Source: odd, Message: Job{ID: "source " + odd}})
	}
	e.acceptTwice(t, entries)

	seen := map[inbox.Identity]string{}
	e.On("id ?", func(ctx context.Context, job Job) error {
		info, _ := inbox.FromContext(ctx)
		if info.MessageID != "?" || info.OrderingKey != "?" || info.Source != "ids" {
			t.Errorf("the handler of %q sees %+v", "?", info)
		}
		return e.Effect(ctx, job.ID)
	})
	for _, c := range e.claimAll(t) {
		seen[c.Identity] = c.OrderingKey
	}
	for _, entry := range entries {
		key, ok := seen[inbox.Identity{Source: entry.Source, MessageID: entry.MessageID, Name: "job"}]
		if !ok || key != entry.OrderingKey {
			t.Errorf("source %q, id %q, key %q came out with key %q, found %v", entry.Source, entry.MessageID, entry.OrderingKey, key, ok)
		}
	}
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
	if n := len(e.Effects(t)); n != len(entries) {
		t.Errorf("%d effects of %d messages", n, len(entries))
	}
}

func longIdentifiers(t *testing.T, e *Env) {
	long := strings.Repeat("é", 127) + "a" // 255 bytes
	name := strings.Repeat("n", 256)
	inbox.Register[OtherJob](e.Names, name)
	var entries []inbox.Entry
	for _, last := range []string{"a", "b"} {
		entries = append(entries,
			inbox.Entry{MessageID: long + last, Source: long + "a", OrderingKey: long + last, Message: OtherJob{}},
			inbox.Entry{MessageID: long + last, Source: long + "b", OrderingKey: long + last, Message: OtherJob{}})
	}
	entries = append(entries, inbox.Entry{MessageID: long, Source: long, Message: OtherJob{}})
	e.acceptTwice(t, entries)
	for _, c := range e.claimAll(t) {
		if len(c.MessageID) < 255 || len(c.Source) < 255 || c.Name != name {
			t.Errorf("cut: %q, %q, %q", c.Source, c.MessageID, c.Name)
		}
	}
}

func longestIdentifiers(t *testing.T, e *Env) {
	if _, err := inbox.NewRepository(e.DB, e.Names, inbox.Config{MaxIdentifier: 900}); err == nil {
		t.Error("three identifiers of 900 bytes need more than 2,704 bytes of an index row")
	}
	const longest = 890
	repo, err := inbox.NewRepository(e.DB, e.Names, inbox.Config{MaxIdentifier: longest})
	if err != nil {
		t.Fatal(err)
	}
	// Random, since PostgreSQL would compress what repeats.
	random := func() string {
		text := make([]byte, longest)
		for i := range text {
			text[i] = byte(0x21 + rand.IntN(0x5e))
		}
		return string(text)
	}
	entries := []inbox.Entry{{MessageID: random(), Source: random(), OrderingKey: random(), Message: Job{}}}
	accepted(t, repo, entries, inbox.Stored)
	accepted(t, repo, entries, inbox.Duplicate)
}
