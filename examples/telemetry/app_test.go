package main

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/internal/testdb"
)

// played is what /metrics shows, and the spans, after the shop has sent a few orders.
func played(t *testing.T, db *bun.DB) (metrics string, spans []span) {
	t.Helper()
	var traces bytes.Buffer
	a, err := newApp(t.Context(), db, &traces, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(a.handler)
	t.Cleanup(server.Close)
	for _, n := range []int{0, 0, 1, 4, 10} {
		if err := a.send(t.Context(), server.URL, n); err != nil {
			t.Fatal(err)
		}
	}
	// The same key for another body.
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/orders", strings.NewReader(`{"number":7}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", "order-0")
	if response, err := http.DefaultClient.Do(request); err != nil {
		t.Fatal(err)
	} else {
		_ = response.Body.Close()
	}
	if _, err := a.processor.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	metrics = get(t, server.URL+"/metrics", http.StatusOK)
	get(t, server.URL+"/livez", http.StatusOK)
	// Nothing runs the processor here.
	if body := get(t, server.URL+"/readyz", http.StatusServiceUnavailable); !strings.Contains(body, "not running") {
		t.Errorf("readyz: %s", body)
	}
	if err := a.close(); err != nil {
		t.Fatal(err)
	}
	for decoder := json.NewDecoder(&traces); ; {
		var s span
		if err := decoder.Decode(&s); err == io.EOF {
			return metrics, spans
		} else if err != nil {
			t.Fatal(err)
		}
		spans = append(spans, s)
	}
}

// span is a part of what stdouttrace writes.
type span struct {
	Name        string
	SpanContext struct{ TraceID, SpanID string }
	Links       []struct {
		SpanContext struct{ TraceID, SpanID string }
	}
}

func get(t *testing.T, url string, status int) string {
	t.Helper()
	response, err := http.Get(url) //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != status {
		t.Errorf("%s: %s: %s", url, response.Status, body)
	}
	return string(body)
}

func TestSendersAndHandlersAreLinked(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(testing.TB) *bun.DB{"PostgreSQL": testdb.PGX, "SQLite": testdb.SQLite} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, spans := played(t, open(t))
			sent, processed := map[string]bool{}, 0
			for _, s := range spans {
				if s.Name == "send shop" {
					sent[s.SpanContext.SpanID] = true
				}
			}
			for _, s := range spans {
				if s.Name != "process shop" {
					continue
				}
				processed++
				if len(s.Links) != 1 || !sent[s.Links[0].SpanContext.SpanID] {
					t.Errorf("links %+v", s.Links)
				}
			}
			if processed < 4 {
				t.Errorf("%d spans of handlers", processed)
			}
		})
	}
}
