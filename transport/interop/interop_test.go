package interop_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/transport/httpinbox"
)

// Credit is the message.
type Credit struct {
	Account string `json:"account"`
	Cents   int64  `json:"cents"`
}

type stored struct {
	Source, MessageID, Name string
	Payload                 []byte
	Metadata                string
}

// serve puts identify in front of a new inbox, behind a real server.
func serve(t *testing.T, identify httpinbox.Identifier) (url string, db *bun.DB) {
	t.Helper()
	db = testdb.SQLite(t)
	names := inbox.NewNameMap()
	inbox.Register[Credit](names, "credit")
	repo, err := inbox.NewRepository(db, names, inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := repo.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	handler, err := httpinbox.New(repo, httpinbox.Config[Credit]{Identify: identify})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL, db
}

func rows(t *testing.T, db *bun.DB) (all []stored) {
	t.Helper()
	err := db.NewRaw(`SELECT source, message_id, name, payload, metadata FROM inbox_messages ORDER BY id`).Scan(t.Context(), &all)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func event(t *testing.T) cloudevents.Event {
	t.Helper()
	e := cloudevents.NewEvent()
	e.SetID("e-1/é ü")
	e.SetSource("https://shop.example/a%20b?c=d")
	e.SetType("com.example.credited")
	e.SetSubject("alice")
	e.SetTime(time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC))
	e.SetExtension("partition", 7)
	if err := e.SetData(cloudevents.ApplicationJSON, Credit{"alice", 500}); err != nil {
		t.Fatal(err)
	}
	return e
}

// send lets the client of the SDK deliver e.
func send(t *testing.T, url string, encoding func(context.Context) context.Context, e cloudevents.Event) (status int) {
	t.Helper()
	client, err := cloudevents.NewClientHTTP(cloudevents.WithTarget(url))
	if err != nil {
		t.Fatal(err)
	}
	result := client.Send(encoding(t.Context()), e)
	var reply *cehttp.Result
	if !cloudevents.ResultAs(result, &reply) {
		t.Fatalf("no reply: %v", result)
	}
	if cloudevents.IsACK(result) != (reply.StatusCode == http.StatusAccepted) {
		t.Errorf("%d is %v to the SDK", reply.StatusCode, result)
	}
	return reply.StatusCode
}

func TestEventsOfTheCloudEventsSDKAreAccepted(t *testing.T) {
	t.Parallel()
	for name, encoding := range map[string]func(context.Context) context.Context{
		"binary":     cloudevents.WithEncodingBinary,
		"structured": cloudevents.WithEncodingStructured,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, db := serve(t, httpinbox.CloudEvents(httpinbox.CloudEventsConfig{}))
			e := event(t)
			if name == "binary" {
				// This version of the SDK does not percent-encode headers as the
				// binding demands, so a code in the source would be decoded.
				e.SetSource("https://shop.example/a-b?c=d")
			}
			for range 3 {
				if status := send(t, url, encoding, e); status != http.StatusAccepted {
					t.Fatalf("status %d", status)
				}
			}
			all := rows(t, db)
			if len(all) != 1 {
				t.Fatalf("%d rows", len(all))
			}
			row := all[0]
			if row.MessageID != e.ID() || row.Source != e.Source() || !bytes.Equal(row.Payload, e.Data()) {
				t.Errorf("stored %+v", row)
			}
			var metadata map[string]string
			if err := json.Unmarshal([]byte(row.Metadata), &metadata); err != nil {
				t.Fatal(err)
			}
			for key, want := range map[string]string{
				"ce-type": e.Type(), "ce-subject": "alice", "ce-time": "2026-01-02T03:04:05.000000006Z", "ce-partition": "7", "ce-specversion": "1.0",
			} {
				if metadata[key] != want {
					t.Errorf("%s: %q, want %q", key, metadata[key], want)
				}
			}
		})
	}
}

func TestBothModesOfTheSDKAreOneMessage(t *testing.T) {
	t.Parallel()
	url, db := serve(t, httpinbox.CloudEvents(httpinbox.CloudEventsConfig{}))
	e := event(t)
	e.SetSource("/shop")
	send(t, url, cloudevents.WithEncodingBinary, e)
	send(t, url, cloudevents.WithEncodingStructured, e)
	if all := rows(t, db); len(all) != 1 {
		t.Errorf("%d rows", len(all))
	}
	e.SetSource("/other")
	send(t, url, cloudevents.WithEncodingBinary, e)
	if all := rows(t, db); len(all) != 2 {
		t.Errorf("%d rows", len(all))
	}
}

// Every single bit of an event that the SDK wrote is flipped: the answer is a
// refusal, or another event is stored; never the old one with other bytes.
func TestAFlippedBitOfAStructuredEventNeverPassesForTheOldOne(t *testing.T) {
	t.Parallel()
	url, db := serve(t, httpinbox.CloudEvents(httpinbox.CloudEventsConfig{}))
	e := event(t)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = cehttp.WriteRequest(binding.WithForceStructured(t.Context()), binding.ToMessage(&e), request)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(request.Body)
	if err != nil {
		t.Fatal(err)
	}
	post := func(body []byte) (status int, outcome string) {
		response, err := http.Post(url, request.Header.Get("Content-Type"), bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		var answer httpinbox.Answer
		if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, answer.Outcome
	}
	if status, outcome := post(body); status != 202 || outcome != "stored" {
		t.Fatal(status, outcome)
	}
	data := bytes.Index(body, e.Data())
	if data < 0 {
		t.Fatalf("%s: the data is not in it as it was given", body)
	}
	for i := range e.Data() {
		changed := bytes.Clone(body)
		changed[data+i] ^= 1
		if status, outcome := post(changed); status == 202 && outcome != "mismatch" {
			t.Errorf("byte %d of the data: %d %s", i, status, outcome)
		}
	}
	if all := rows(t, db); len(all) != 1 || !bytes.Equal(all[0].Payload, e.Data()) {
		t.Errorf("stored %+v", all)
	}
}

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// webhook is what the reference library signs.
type webhook struct {
	id, signature string
	at            time.Time
	body          []byte
}

func sign(t *testing.T, secret, id string, at time.Time, body string) webhook {
	t.Helper()
	reference, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	signature, err := reference.Sign(id, at, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	w := webhook{id, signature, at, []byte(body)}
	if err := reference.Verify(w.body, w.header()); err != nil {
		t.Fatalf("the reference does not verify what it signed: %v", err)
	}
	return w
}

func (w webhook) header() http.Header {
	h := http.Header{}
	h.Set("Content-Type", "application/json")
	h.Set(standardwebhooks.HeaderWebhookID, w.id)
	h.Set(standardwebhooks.HeaderWebhookTimestamp, fmt.Sprint(w.at.Unix()))
	h.Set(standardwebhooks.HeaderWebhookSignature, w.signature)
	return h
}

func (w webhook) post(t *testing.T, url string) (status int) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(w.body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header = w.header()
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

func TestWhatTheStandardWebhooksLibrarySignsIsAcceptedAndNothingElse(t *testing.T) {
	t.Parallel()
	const other = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	identify, err := httpinbox.StandardWebhooks(httpinbox.StandardWebhooksConfig{Secrets: []string{other, secret}})
	if err != nil {
		t.Fatal(err)
	}
	url, db := serve(t, identify)
	const body = `{"account":"alice", "cents":500}`
	good := sign(t, secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Now(), body)
	for range 2 {
		if status := good.post(t, url); status != http.StatusAccepted {
			t.Fatalf("status %d", status)
		}
	}
	if status := sign(t, other, good.id, time.Now().Add(time.Second), body).post(t, url); status != http.StatusAccepted {
		t.Errorf("a retry under the other secret: %d", status)
	}

	refused := func(what string, w webhook) {
		t.Helper()
		if status := w.post(t, url); status != http.StatusUnauthorized {
			t.Errorf("%s: status %d", what, status)
		}
	}
	for i := range good.body {
		for bit := range 8 {
			w := good
			w.body = bytes.Clone(good.body)
			w.body[i] ^= 1 << bit
			refused(fmt.Sprintf("bit %d of byte %d of the body", bit, i), w)
		}
	}
	for i := range good.signature {
		for bit := range 7 {
			changed := []byte(good.signature)
			if changed[i] ^= 1 << bit; changed[i] <= 0x20 || changed[i] >= 0x7f {
				continue // not a header value any more
			}
			w := good
			w.signature = string(changed)
			refused(fmt.Sprintf("bit %d of byte %d of the signature", bit, i), w)
		}
	}
	for i := range good.id {
		changed := []byte(good.id)
		changed[i] ^= 1
		w := good
		w.id = string(changed)
		refused(fmt.Sprintf("byte %d of the id", i), w)
	}
	w := good
	w.at = w.at.Add(time.Second)
	refused("another time", w)
	if all := rows(t, db); len(all) != 1 || string(all[0].Payload) != body {
		t.Errorf("stored %+v", all)
	}
}

// The example of the reference library's own documentation, signed by somebody
// else long ago.
func TestTheReferenceVectorVerifies(t *testing.T) {
	t.Parallel()
	identify, err := httpinbox.StandardWebhooks(httpinbox.StandardWebhooksConfig{
		Secrets: []string{secret},
		Clock:   func() time.Time { return time.Unix(1614265330, 0) },
	})
	if err != nil {
		t.Fatal(err)
	}
	w := webhook{"msg_p5jXN8AQM9LWM0D4loKWxJek", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`)}
	found, err := identify.Identify(&http.Request{Header: w.header()}, w.body)
	if err != nil || found.MessageID != w.id {
		t.Errorf("%+v, %v", found, err)
	}
}
