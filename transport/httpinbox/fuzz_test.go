package httpinbox_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/transport/httpinbox"
)

// request has header fields in pairs.
func request(body []byte, fields ...string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
	for i := 0; i < len(fields); i += 2 {
		r.Header[http.CanonicalHeaderKey(fields[i])] = []string{fields[i+1]}
	}
	return r
}

func FuzzIdempotencyKey(f *testing.F) {
	for _, seed := range []string{`k`, `"k"`, `"a \"b\" \\"`, `"k";a=1;b="x";*c=?0`, `"k";`, `"`, `"\`, `"k" x`, `a,b`, ``, ` `, "\x00", `"é"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		found, err := httpinbox.IdempotencyKey().Identify(request(nil, "Idempotency-Key", value), nil)
		if err != nil {
			return
		}
		id := found.MessageID
		if id == "" || strings.Trim(id, asciiText) != "" {
			t.Fatalf("%q was read as %q", value, id)
		}
		// Written in the canonical way it is the same key.
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(id) + `"`
		again, err := httpinbox.IdempotencyKey().Identify(request(nil, "Idempotency-Key", quoted), nil)
		if err != nil || again.MessageID != id {
			t.Fatalf("%q was read as %q, %s as %q, %v", value, id, quoted, again.MessageID, err)
		}
		if !strings.HasPrefix(strings.TrimLeft(value, " "), `"`) && strings.Trim(value, " ") != id {
			t.Fatalf("the bare key %q was read as %q", value, id)
		}
	})
}

var asciiText = func() string {
	var b strings.Builder
	for c := byte(0x20); c < 0x7f; c++ {
		b.WriteByte(c)
	}
	return b.String()
}()

func FuzzStandardWebhooks(f *testing.F) {
	now := fmt.Sprint(webhookNow.Unix())
	f.Add("msg_1", now, v1(secretA, "msg_1", now, good), []byte(good))
	f.Add("msg_1", now, v1a(privateKey, "msg_1", now, good), []byte(good))
	f.Add("msg.1", now, "v1,", []byte(""))
	f.Add("", "-1", "v1a,AAAA  v1", []byte("{"))
	identifier := webhooks(f, whsec(secretA), whpk(privateKey))
	f.Fuzz(func(t *testing.T, id, timestamp, signature string, body []byte) {
		identify := func(signature string) (httpinbox.Identified, error) {
			return identifier.Identify(request(body, "webhook-id", id, "webhook-timestamp", timestamp, "webhook-signature", signature), body)
		}
		symmetric, asymmetric := v1(secretA, id, timestamp, string(body)), v1a(privateKey, id, timestamp, string(body))
		if found, err := identify(signature); err == nil {
			list := strings.Fields(signature)
			if found.MessageID != id || !slices.Contains(list, symmetric) && !slices.Contains(list, asymmetric) {
				t.Fatalf("accepted %q %q %q %q", id, timestamp, signature, body)
			}
		}
		// What is signed is accepted exactly when id and time are.
		_, err1 := identify(symmetric)
		_, err2 := identify("v3,x " + asymmetric)
		var seconds int64
		n, _ := fmt.Sscanf(timestamp, "%d", &seconds)
		fits := n == 1 && fmt.Sprint(seconds) == timestamp && seconds >= webhookNow.Unix()-300 && seconds <= webhookNow.Unix()+300
		want := id != "" && !strings.Contains(id, ".") && fits
		if (err1 == nil) != want || (err2 == nil) != want {
			t.Fatalf("id %q, timestamp %q: %v, %v", id, timestamp, err1, err2)
		}
	})
}

func FuzzCloudEventsBinary(f *testing.F) {
	f.Add("1", "/shop", "t", "ce-x", "%41")
	f.Add(`"q"`, "é", "%", "ce-", "\xff")
	f.Add("100%25", "urn:x", `"`, "CE-ID", "2")
	events := httpinbox.CloudEvents(httpinbox.CloudEventsConfig{})
	f.Fuzz(func(t *testing.T, id, source, typ, field, value string) {
		if found, err := events.Identify(request(nil, "ce-specversion", "1.0", "ce-id", id, "ce-source", source, "ce-type", typ, field, value), nil); err == nil {
			for name, value := range found.Metadata {
				if !utf8.ValidString(name) || !utf8.ValidString(value) {
					t.Fatalf("metadata %q: %q", name, value)
				}
			}
			if found.MessageID == "" || found.Source == "" || !utf8.ValidString(found.MessageID+found.Source) {
				t.Fatalf("accepted %+v", found)
			}
		}
		// What is encoded as the binding says comes out as it went in.
		if id == "" || source == "" || typ == "" || !utf8.ValidString(id+source+typ) || strings.ContainsRune(id+source+typ, '\uFFFD') {
			return
		}
		encode := func(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }
		found, err := events.Identify(request(nil, "ce-specversion", "1.0", "ce-id", encode(id), "ce-source", encode(source), "ce-type", encode(typ)), nil)
		if err != nil || found.MessageID != id || found.Source != source || found.Metadata["ce-type"] != typ {
			t.Fatalf("%q %q %q: %+v, %v", id, source, typ, found, err)
		}
	})
}

func FuzzCloudEventsStructured(f *testing.F) {
	f.Add([]byte(`{"specversion":"1.0","id":"1","source":"/s","type":"t","data":{"a":1}}`))
	f.Add([]byte(`{"specversion":"1.0","id":"\ud800","source":"/s","type":"t","data_base64":"MQ=="}`))
	f.Add([]byte(`{"specversion":"1.0","id":"1","source":"/s","type":"t","datacontenttype":"text/plain","data":"x","id":2}`))
	f.Add([]byte(`[null]`))
	f.Add([]byte(`{"data":{"data":[]}}`))
	events := httpinbox.CloudEvents(httpinbox.CloudEventsConfig{})
	f.Fuzz(func(t *testing.T, body []byte) {
		found, err := events.Identify(request(body, "content-type", "application/cloudevents+json"), body)
		if err != nil {
			return
		}
		// A second reader, who knows nothing of duplicates or case, must see the
		// same event.
		var event struct {
			ID, Source string
			Data       json.RawMessage
			DataBase64 *[]byte `json:"data_base64"`
		}
		if err := json.Unmarshal(body, &event); err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		if found.MessageID != event.ID || found.Source != event.Source || found.Payload == nil {
			t.Fatalf("%q: read as %+v", body, found)
		}
		if event.DataBase64 != nil && !bytes.Equal(found.Payload, *event.DataBase64) {
			t.Fatalf("%q: payload %q", body, found.Payload)
		}
		if found.MediaType == "application/json" && event.Data != nil && !bytes.Contains(body, found.Payload) {
			t.Fatalf("%q: payload %q is not a part of it", body, found.Payload)
		}
	})
}

// FuzzRequest sends everything through a whole handler: whatever comes, the
// answer is a 202 for what is stored as it came, or a well-formed problem.
func FuzzRequest(f *testing.F) {
	f.Add("application/json", "k", "", []byte(good))
	f.Add("application/json;charset=utf-8", `"k"`, "identity", []byte(`{"account":1}`))
	f.Add("", "", "gzip", []byte("\x1f\x8b"))
	f.Add("a/b; c=\"", "\xff", "", []byte(`{"account":"\ud800"}`))
	db := testdb.SQLite(f)
	names := inbox.NewNameMap()
	inbox.Register[Credit](names, "credit")
	repo, err := inbox.NewRepository(db, names, inbox.Config{})
	if err != nil {
		f.Fatal(err)
	}
	if err := repo.Migrate(f.Context()); err != nil {
		f.Fatal(err)
	}
	handler, err := httpinbox.New(repo, httpinbox.Config[Credit]{Identify: httpinbox.IdempotencyKey(), MaxBody: 4096, StatusURL: httpinbox.StatusPath("/")})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, contentType, key, encoding string, body []byte) {
		if _, err := db.ExecContext(t.Context(), `DELETE FROM inbox_messages`); err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, request(body, "content-type", contentType, "idempotency-key", key, "content-encoding", encoding))
		rows := rowsOf(t, db)
		if w.Code == http.StatusAccepted {
			if len(rows) != 1 || !bytes.Equal(rows[0].Payload, body) {
				t.Fatalf("stored %q for %q", rows, body)
			}
			return
		}
		var p httpinbox.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Status != w.Code || p.Code == "" || w.Code < 400 || w.Code >= 500 {
			t.Fatalf("%d %s: %v", w.Code, w.Body, err)
		}
		if len(rows) != 0 {
			t.Fatalf("answered %d, but stored %q", w.Code, rows)
		}
	})
}
