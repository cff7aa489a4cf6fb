package httpinbox_test

import (
	"context"
	"database/sql"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/mediator"
	"github.com/letterbox-go/letterbox/transport/httpinbox"
)

// Payment is a message of the application.
type Payment struct {
	ID    string `json:"id"`
	Cents int64  `json:"cents"`
}

// Validate is called by the handler.
func (p Payment) Validate() error {
	if p.Cents <= 0 {
		return fmt.Errorf("cents must be positive")
	}
	return nil
}

func Example() {
	repo, process := exampleInbox()
	accept, err := httpinbox.New(repo, httpinbox.Config[Payment]{
		Identify:  httpinbox.IdempotencyKey(),
		Source:    "api", // with several clients: SourceFunc
		StatusURL: httpinbox.StatusPath("/payments/"),
	})
	if err != nil {
		log.Fatal(err)
	}
	status, err := httpinbox.NewStatus(repo, httpinbox.StatusConfig{Name: "payment", Source: "api"})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/payments", accept)
	mux.Handle("/payments/{id}", status)

	send := func(body string) {
		r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", `"k-1"`)
		show(mux, r)
	}
	send(`{"cents":500}`)
	send(`{"cents":500}`) // the client did not see the answer
	send(`{"cents":900}`)
	send(`{"cents":0}`)
	process()
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/payments/k-1", nil))
	fmt.Println(w.Code, strings.Contains(w.Body.String(), `"status":"processed"`))
	// Output:
	// 202 {"message_id":"k-1","outcome":"stored","status_url":"/payments/k-1"}
	// 202 {"message_id":"k-1","outcome":"duplicate","status_url":"/payments/k-1"}
	// 422 {"title":"Unprocessable Entity","status":422,"detail":"this message id was used with another body","code":"mismatch"}
	// 422 {"title":"Unprocessable Entity","status":422,"detail":"cents must be positive","code":"wrong_shape"}
	// 200 true
}

func ExampleStandardWebhooks() {
	repo, _ := exampleInbox()
	identify, err := httpinbox.StandardWebhooks(httpinbox.StandardWebhooksConfig{
		// Two while the sender rotates them.
		Secrets: []string{"whsec_" + base64.StdEncoding.EncodeToString([]byte("an old secret of 24 byte")), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
	})
	if err != nil {
		log.Fatal(err)
	}
	hook, err := httpinbox.New(repo, httpinbox.Config[Payment]{Identify: identify, Source: "psp-x"})
	if err != nil {
		log.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, "/hook", strings.NewReader(`{"cents":500}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("webhook-id", "msg_1")
	r.Header.Set("webhook-timestamp", "1614265330") // 2021: a replay
	r.Header.Set("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
	show(hook, r)
	// Output:
	// 401 {"title":"Unauthorized","status":401,"detail":"webhook-timestamp is more than 5m0s from now","code":"signature_invalid"}
}

func ExampleCloudEvents() {
	repo, _ := exampleInbox()
	events, err := httpinbox.New(repo, httpinbox.Config[any]{
		Identify: httpinbox.CloudEvents(httpinbox.CloudEventsConfig{
			Names: map[string]string{"com.example.paid": "payment"},
		}),
	})
	if err != nil {
		log.Fatal(err)
	}
	binary := httptest.NewRequest(http.MethodPost, "/events", strings.NewReader(`{"cents":500}`))
	binary.Header.Set("Content-Type", "application/json")
	binary.Header.Set("ce-specversion", "1.0")
	binary.Header.Set("ce-id", "e-1")
	binary.Header.Set("ce-source", "/shop")
	binary.Header.Set("ce-type", "com.example.paid")
	show(events, binary)

	structured := httptest.NewRequest(http.MethodPost, "/events", strings.NewReader(
		`{"specversion":"1.0","id":"e-1","source":"/shop","type":"com.example.paid","data":{"cents":500}}`))
	structured.Header.Set("Content-Type", "application/cloudevents+json")
	show(events, structured)
	// Output:
	// 202 {"message_id":"e-1","outcome":"stored"}
	// 202 {"message_id":"e-1","outcome":"duplicate"}
}

func ExampleFromBody() {
	repo, _ := exampleInbox()
	accept, err := httpinbox.New(repo, httpinbox.Config[Payment]{
		Identify: httpinbox.FromBody(func(p Payment) string { return p.ID }),
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, body := range []string{`{"id":"p-1","cents":500}`, `{"cents":500}`} {
		r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		show(accept, r)
	}
	// Output:
	// 202 {"message_id":"p-1","outcome":"stored"}
	// 422 {"title":"Unprocessable Entity","status":422,"detail":"the body holds no message id","code":"message_id_invalid"}
}

func ExampleNewStatus() {
	repo, _ := exampleInbox()
	// The sources of CloudEvents are open: the client names one.
	status, err := httpinbox.NewStatus(repo, httpinbox.StatusConfig{
		Name:       "payment",
		SourceFunc: func(r *http.Request) (string, error) { return r.URL.Query().Get("source"), nil },
	})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/events/{id}", status)
	show(mux, httptest.NewRequest(http.MethodGet, "/events/e-1?source=/shop", nil))
	// Output:
	// 404 {"title":"Not Found","status":404,"detail":"no such message","code":"not_found"}
}

func show(handler http.Handler, r *http.Request) {
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	body, _ := io.ReadAll(w.Body)
	fmt.Printf("%d %s", w.Code, body)
}

// exampleInbox is what an application sets up once.
func exampleInbox() (repo *inbox.Repository, process func()) {
	ctx := context.Background()
	pool, err := sql.Open("sqlite", "file::memory:")
	if err != nil {
		log.Fatal(err)
	}
	pool.SetMaxOpenConns(1)
	names := inbox.NewNameMap()
	inbox.Register[Payment](names, "payment")
	repo, err = inbox.NewRepository(bun.NewDB(pool, sqlitedialect.New()), names, inbox.Config{})
	if err != nil {
		log.Fatal(err)
	}
	if err := repo.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	requests := mediator.NewRequestMap()
	mediator.BindCommand(requests, func(context.Context, Payment) error { return nil })
	processor, err := inbox.NewProcessor(repo, inbox.ProcessorConfig{Requests: mediator.NewRequestMediator(requests)})
	if err != nil {
		log.Fatal(err)
	}
	return repo, func() {
		if _, err := processor.Drain(ctx); err != nil {
			log.Fatal(err)
		}
	}
}
