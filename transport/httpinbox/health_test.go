package httpinbox_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/transport/httpinbox"
)

func TestProbes(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, db *bun.DB) {
		e := newEnv(t, db)
		health, err := inbox.NewHealth(e.repo, nil, inbox.HealthConfig{Fresh: -1})
		if err != nil {
			t.Fatal(err)
		}
		ask := func(h http.Handler, method string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, "/", nil))
			return w
		}
		live, ready := httpinbox.Livez(health), httpinbox.Readyz(health)
		for name, h := range map[string]http.Handler{"live": live, "ready": ready} {
			if w := ask(h, http.MethodGet); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"status":"ok"`) || w.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("%s: %d %s", name, w.Code, w.Body)
			}
			if w := ask(h, http.MethodPost); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") == "" {
				t.Errorf("POST %s: %d", name, w.Code)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if w := ask(live, http.MethodGet); w.Code != http.StatusOK {
			t.Errorf("a database that is away cost liveness: %d", w.Code)
		}
		w := ask(ready, http.MethodHead)
		if w.Code != http.StatusServiceUnavailable {
			t.Errorf("ready without a database: %d", w.Code)
		}
		w = ask(ready, http.MethodGet)
		cause := health.Check(context.Background()).Err
		if !strings.Contains(w.Body.String(), "does not answer") || cause == nil || strings.Contains(w.Body.String(), cause.Error()) {
			t.Errorf("%s; the cause is %v", w.Body, cause)
		}
	})
}
