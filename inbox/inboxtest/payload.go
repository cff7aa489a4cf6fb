package inboxtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/mediator"
)

var payloadCases = []Case{
	{
		Name: "payloads come out byte for byte",
		Rule: "Payloads are opaque bytes: nothing is parsed, escaped or cut on the way.",
		Body: payloadsAreBytes,
	},
	{
		Name: "metadata comes out as it went in",
		Rule: "Metadata is any valid UTF-8, control characters included.",
		Body: metadataSurvives,
	},
	{
		Name: "a payload of 20 MB survives where the limits allow it",
		Rule: "The limits are configuration, not the database's.",
		Body: hugePayload,
	},
	{
		Name: "long numbers keep their digits",
		Rule: "9007199254740993 has the same digits after accept, process, dead and replay.",
		Body: longNumbers,
	},
}

func payloads() map[string][]byte {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	random := make([]byte, 100_000)
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	return map[string][]byte{
		"empty":            {},
		"null":             []byte(`null`),
		"escaped NUL":      []byte(`{"id":"\u0000"}`),
		"escaped escape":   []byte(`{"id":"\\u0000"}`),
		"lone surrogate":   []byte(`{"id":"\ud800"}`),
		"invalid UTF-8":    []byte("{\"id\":\"\xff\xfe\xc0\x80\xed\xa0\x80\"}"),
		"duplicate keys":   []byte(`{"id":"a","id":"b","a":1,"a":2}`),
		"order of keys":    []byte(`{"z":1,"a":2,"m":3}`),
		"white space":      []byte(" \t\r\n{ \"id\" : \"x\" }\n\n"),
		"huge number":      []byte(`{"n":1e400,"m":-0.0,"k":1.0}`),
		"long number":      []byte(`{"n":9007199254740993}`),
		"NUL":              {0},
		"NULs":             {0, 0, 'a', 0},
		"every byte":       every,
		"every byte twice": append(append([]byte{}, every...), every...),
		"placeholders":     []byte(`? ?? ?0 ?id $1 $$ $a$ :a @a {} {0} %s`),
		"quotes":           []byte(`'"` + "`" + `''""\'\"\\ \x41 E'\n'`),
		"array":            []byte(`{"\\x00",NULL}`),
		"hex":              []byte(`\xdeadbeef`),
		"templates":        []byte(`{messages}{now}{queue}{rows}{list}`),
		"statement":        []byte(`'); DROP TABLE inbox_messages; --`),
		"byte order mark":  []byte("\xef\xbb\xbf{}"),
		"9 kB":             []byte(strings.Repeat("0123456789", 900)),
		"random":           random,
	}
}

func payloadsAreBytes(t *testing.T, e *Env) {
	want := payloads()
	var entries []inbox.Entry
	for id, payload := range want {
		entries = append(entries, inbox.Entry{MessageID: id, Message: inbox.Raw{Name: "job", Payload: payload}})
	}
	entries = append(entries, inbox.Entry{MessageID: "nil", Message: &inbox.Raw{Name: "job"}})
	want["nil"] = []byte{}
	e.acceptTwice(t, entries)

	claimed := e.claimAll(t)
	if len(claimed) != len(want) {
		t.Errorf("%d messages, want %d", len(claimed), len(want))
	}
	for _, c := range claimed {
		if !bytes.Equal(c.Payload, want[c.MessageID]) {
			t.Errorf("%s: claimed %.80q, want %.80q", c.MessageID, c.Payload, want[c.MessageID])
		}
	}
	for id, payload := range want {
		if row := e.Row(t, id); !bytes.Equal(row.Payload, payload) {
			t.Errorf("%s: the row has %.80q, want %.80q", id, row.Payload, payload)
		}
	}
	// Whatever becomes of them: those that are no JSON die, and stay as they were.
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{MaxAttempts: 1}))
	for id, payload := range want {
		if row := e.Row(t, id); !bytes.Equal(row.Payload, payload) || row.Status == Pending {
			t.Errorf("%s: after processing status %d and %.80q (%s)", id, row.Status, row.Payload, row.LastError)
		}
	}
	e.Expect(t, "every byte", Dead, 1)
	// Several of them have the same job; the invariant counts effects per job.
	e.Exec(t, `DELETE FROM effects WHERE job = ''`)
}

func metadataSurvives(t *testing.T, e *Env) {
	all := map[string]string{"": "empty key", "empty": "", "controls": "\x00\x01\x1f\x7f\u0080\n\t", "html": "<a href='x'>&</a>", "json": `{"a":[1]}`}
	for i, odd := range oddities {
		all[odd] = oddities[len(oddities)-1-i]
	}
	e.On("a", func(ctx context.Context, job Job) error {
		info, ok := inbox.FromContext(ctx)
		if !ok || !maps.Equal(info.Metadata, all) {
			t.Errorf("the handler sees %q", info.Metadata)
		}
		return e.Effect(ctx, job.ID)
	})
	entries := e.Entries("a", "none")
	entries[0].Metadata = all
	accepted(t, e.Repo, entries, inbox.Stored, inbox.Stored)
	for _, c := range e.claimAll(t) {
		if c.MessageID == "a" && !maps.Equal(c.Metadata, all) {
			t.Errorf("claimed with %q", c.Metadata)
		}
		if c.MessageID == "none" && len(c.Metadata) != 0 {
			t.Errorf("claimed with %q, want none", c.Metadata)
		}
	}
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
	e.Expect(t, "a", Processed, 0)
}

func hugePayload(t *testing.T, e *Env) {
	const size = 20 << 20
	repo := e.NewRepository(t, inbox.Config{MaxPayload: size, MaxBatchBytes: size})
	payload := bytes.Repeat([]byte("\x00\xff'?\\\"{}"), size/8)
	entries := []inbox.Entry{{MessageID: "huge", Message: inbox.Raw{Name: "job", Payload: payload}}}
	accepted(t, repo, entries, inbox.Stored)
	claimed := e.claimAll(t)
	if len(claimed) != 1 || !bytes.Equal(claimed[0].Payload, payload) {
		t.Error("the payload changed")
	}
}

// LongNumbers has numbers that a float64 cannot hold.
type LongNumbers struct {
	Any   any            `json:"any"`
	Int   int64          `json:"int"`
	Inner map[string]any `json:"inner"`
}

func longNumbers(t *testing.T, e *Env) {
	const digits = "9007199254740993"
	const payload = `{"any":` + digits + `,"int":` + digits + `,"inner":{"n":[` + digits + `.10]}}`
	fail := true
	inbox.Register[LongNumbers](e.Names, "long_numbers")
	mediator.BindCommand(e.Requests, func(ctx context.Context, m LongNumbers) error {
		text, err := json.Marshal(m)
		if err != nil || string(text) != payload {
			t.Errorf("the handler sees %s, %v", text, err)
		}
		if m.Any != json.Number(digits) || strconv.FormatInt(m.Int, 10) != digits {
			t.Errorf("the handler sees %v and %d", m.Any, m.Int)
		}
		if info, _ := inbox.FromContext(ctx); info.Metadata["n"] != digits {
			t.Errorf("the handler sees metadata %q", info.Metadata)
		}
		if fail {
			return inbox.Permanent(errors.New("not yet"))
		}
		return nil
	})
	accepted(t, e.Repo, []inbox.Entry{
		{MessageID: "raw", Message: inbox.Raw{Name: "long_numbers", Payload: []byte(payload)}, Metadata: map[string]string{"n": digits}},
	}, inbox.Stored)
	var sent LongNumbers
	decoder := json.NewDecoder(strings.NewReader(payload))
	decoder.UseNumber()
	if err := decoder.Decode(&sent); err != nil {
		t.Fatal(err)
	}
	accepted(t, e.Repo, []inbox.Entry{{MessageID: "value", Message: sent, Metadata: map[string]string{"n": digits}}}, inbox.Stored)
	check := func(status, attempts int) {
		t.Helper()
		for _, id := range []string{"raw", "value"} {
			row := e.Expect(t, id, status, attempts)
			if string(row.Payload) != payload || row.Metadata != `{"n":"`+digits+`"}` {
				t.Errorf("%s: the row has %s, %s", id, row.Payload, row.Metadata)
			}
		}
	}
	p := e.Processor(t, inbox.ProcessorConfig{})
	check(Pending, 0)
	e.Drain(t, p)
	check(Dead, 1)
	fail = false
	e.revive(t)
	e.Drain(t, p)
	check(Processed, 1)
}

// revive makes dead messages claimable again, attempts and all.
func (e *Env) revive(t *testing.T) {
	t.Helper()
	e.begun(t, func(tx bun.Tx) {
		for _, statement := range []string{
			`UPDATE inbox_queue SET state = 0 WHERE state = 2`,
			`UPDATE inbox_messages SET status = 0 WHERE status = 2`,
		} {
			if _, err := tx.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
	})
	e.MakeDue(t)
}
