package httpinbox_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/mediator"
	"github.com/letterbox-go/letterbox/transport/httpinbox"
)

func (e *env) get(t *testing.T, method, path string) (*http.Response, map[string]any) {
	t.Helper()
	r, err := http.NewRequest(method, e.server.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var body map[string]any
	if method != http.MethodHead {
		if body, err = decodeMap(response.Body); err != nil {
			t.Fatal(err)
		}
	}
	return response, body
}

func TestStatusRoute(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, db *bun.DB) {
		e := newEnv(t, db)
		route(t, e, "/credits", httpinbox.Config[Credit]{Identify: httpinbox.IdempotencyKey(), Source: "shop", StatusURL: httpinbox.StatusPath("/credits/")})
		route(t, e, "/other", httpinbox.Config[Credit]{Identify: httpinbox.IdempotencyKey(), Source: "other"})
		route(t, e, "/amounts", httpinbox.Config[Amount]{Identify: httpinbox.IdempotencyKey(), Source: "shop"})
		status, err := httpinbox.NewStatus(e.repo, httpinbox.StatusConfig{Name: "credit", Source: "shop"})
		if err != nil {
			t.Fatal(err)
		}
		e.mux.Handle("/credits/{id}", status)
		mediator.BindCommand(e.requests, func(_ context.Context, c Credit) error {
			if c.Account == "bad" {
				return errors.New("secret-reason")
			}
			return nil
		})
		began := time.Now().Add(-time.Minute)
		for id, account := range map[string]string{"fine": "secret-account", "poor": "bad"} {
			e.post(t, "/credits", fmt.Sprintf(`{"account":%q}`, account), "Idempotency-Key: "+id, "Traceparent: "+traceparent).expectOutcome(t, inbox.Stored)
		}
		e.post(t, "/other", good, "Idempotency-Key: elsewhere").expectOutcome(t, inbox.Stored)
		e.post(t, "/amounts", "1", "Idempotency-Key: named").expectOutcome(t, inbox.Stored)

		expect := func(id, status string, attempts int, fields ...string) {
			t.Helper()
			response, body := e.get(t, http.MethodGet, "/credits/"+id)
			if response.StatusCode != 200 || body["message_id"] != id || body["status"] != status || body["attempts"] != float64(attempts) {
				t.Errorf("%s: %d %v, want %s after %d", id, response.StatusCode, body, status, attempts)
			}
			for _, field := range append([]string{"received_at"}, fields...) {
				at, err := time.Parse(time.RFC3339, fmt.Sprint(body[field]))
				if err != nil || at.Before(began) || at.After(time.Now().Add(2*time.Hour)) {
					t.Errorf("%s: %v: %v", field, body[field], err)
				}
			}
			if len(body) != 4+len(fields) {
				t.Errorf("more is shown than should be: %v", body)
			}
			if strings.Contains(fmt.Sprint(body), "secret") || strings.Contains(fmt.Sprint(body), "00-") {
				t.Errorf("content is shown: %v", body)
			}
		}
		expect("fine", "pending", 0, "due")
		e.drain(t, inbox.ProcessorConfig{MaxAttempts: 2, Backoff: inbox.Backoff{Base: time.Hour, Max: time.Hour}})
		expect("fine", "processed", 0, "processed_at")
		expect("poor", "pending", 1, "due")
		for _, update := range []string{`UPDATE inbox_queue SET due = '2000-01-01T00:00:00.000000Z'`} {
			if _, err := db.ExecContext(t.Context(), update); err != nil {
				t.Fatal(err)
			}
		}
		e.drain(t, inbox.ProcessorConfig{MaxAttempts: 2})
		expect("poor", "dead", 2)

		for _, id := range []string{"unknown", "elsewhere", "named", "%00", "%ff", strings.Repeat("k", 300), "fin", "Fine"} {
			if response, body := e.get(t, http.MethodGet, "/credits/"+id); response.StatusCode != 404 || body["code"] != "not_found" {
				t.Errorf("%s: %d %v", id, response.StatusCode, body)
			}
		}
		if response, _ := e.get(t, http.MethodHead, "/credits/fine"); response.StatusCode != 200 || response.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("HEAD: %v", response)
		}
		if response, body := e.get(t, http.MethodPost, "/credits/fine"); response.StatusCode != 405 || response.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("POST: %d %v", response.StatusCode, body)
		}
	})
}

func TestStatusURLLeadsBackToTheMessage(t *testing.T) {
	t.Parallel()
	e := newEnv(t, testdb.SQLite(t))
	route(t, e, "/credits", httpinbox.Config[Credit]{Identify: httpinbox.IdempotencyKey(), StatusURL: httpinbox.StatusPath("/credits/")})
	status, err := httpinbox.NewStatus(e.repo, httpinbox.StatusConfig{Name: "credit"})
	if err != nil {
		t.Fatal(err)
	}
	e.mux.Handle("GET /credits/{id}", status)
	for _, id := range []string{"a", "a/b", "..", ".", "a?b#c", "100%", "a b", "%2F", "//", "a;b", "+"} {
		r := e.post(t, "/credits", good, fmt.Sprintf("Idempotency-Key: %q", id))
		r.expectOutcome(t, inbox.Stored)
		response, body := e.get(t, http.MethodGet, r.answer.StatusURL)
		if response.StatusCode != 200 || body["message_id"] != id {
			t.Errorf("%q at %s: %d %v", id, r.answer.StatusURL, response.StatusCode, body)
		}
	}
}

func TestStatusFollowsARenamedType(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, db *bun.DB) {
		e := newEnv(t, db)
		former := inbox.NewNameMap()
		inbox.Register[Renamed](former, "old")
		repo, err := inbox.NewRepository(db, former, inbox.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := repo.Accept(t.Context(), []inbox.Entry{{MessageID: "1", Message: Renamed{}}}); err != nil {
			t.Fatal(err)
		}
		status, err := e.repo.Status(t.Context(), inbox.Identity{MessageID: "1", Name: "new"})
		if err != nil || status.Kind != inbox.Pending || status.Identity.Name != "old" {
			t.Errorf("%+v, %v", status, err)
		}
		if _, err := repo.Status(t.Context(), inbox.Identity{MessageID: "1", Name: "new"}); !errors.Is(err, inbox.ErrNotFound) {
			t.Errorf("a name that this repository does not know: %v", err)
		}
	})
}
