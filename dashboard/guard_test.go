package dashboard_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/dashboard"
	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

func TestNew(t *testing.T) {
	t.Parallel()
	repo, err := inbox.NewRepository(testdb.SQLite(t), inbox.NewNameMap(), inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("refuses a config without an authoriser", func(t *testing.T) {
		t.Parallel()
		_, err := dashboard.New(repo, dashboard.Config{})
		if err == nil || !strings.Contains(err.Error(), "Authorise is missing") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("takes Insecure instead", func(t *testing.T) {
		t.Parallel()
		if _, err := dashboard.New(repo, dashboard.Config{Insecure: true}); err != nil {
			t.Error(err)
		}
	})
	t.Run("names every problem", func(t *testing.T) {
		t.Parallel()
		_, err := dashboard.New(repo, dashboard.Config{PageSize: 501, Timeout: -1, RetryRate: -1, TraceURL: "javascript:alert('{trace}')"})
		if err == nil {
			t.Fatal("no error")
		}
		wants(t, err.Error(), "Authorise", "PageSize", "Timeout", "RetryRate", "TraceURL")
	})
	t.Run("refuses a trusted origin that is none", func(t *testing.T) {
		t.Parallel()
		if _, err := dashboard.New(repo, dashboard.Config{Insecure: true, TrustedOrigins: []string{"example.com/path"}}); err == nil {
			t.Error("no error")
		}
	})
	t.Run("refuses to work without a repository", func(t *testing.T) {
		t.Parallel()
		if _, err := dashboard.New(nil, dashboard.Config{Insecure: true}); err == nil {
			t.Error("no error")
		}
	})
}

// sample fills the wildcards of a pattern.
func sample(pattern string, id int64) string {
	path := strings.NewReplacer("{$}", "", "{id}", strconv.FormatInt(id, 10), "{job}", "UNKNOWN", "{file}", "style.css").Replace(pattern)
	query := map[string]string{
		"/keys/skip": "?key=k", "/names/pause": "?name=order", "/names/resume": "?name=order",
		"/messages": "?status=dead&error=e", "/retry-all": "?name=order",
	}
	return strings.TrimPrefix(path, "/") + query[path]
}

func TestTheGuard(t *testing.T) {
	t.Parallel()
	s := newSite(t, testdb.SQLite(t), dashboard.Config{Challenge: `Basic realm="inbox"`})
	id := s.die(t, 1, "broken", "k")[0]
	before := s.contents(t)

	everyRoute := func(t *testing.T, check func(t *testing.T, route dashboard.RouteInfo, path string)) {
		for _, route := range dashboard.Routes() {
			check(t, route, sample(route.Pattern, id))
		}
	}
	t.Run("turns away who is not logged in, and says how to log in", func(t *testing.T) {
		everyRoute(t, func(t *testing.T, route dashboard.RouteInfo, path string) {
			r := s.send(t, "", route.Method, path, nil, "")
			if r.status != http.StatusUnauthorized || r.header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s %s: %d", route.Method, path, r.status)
			}
			wantsNot(t, r.body, "who are you")
		})
	})
	t.Run("turns away who has no level, or one that does not exist", func(t *testing.T) {
		everyRoute(t, func(t *testing.T, route dashboard.RouteInfo, path string) {
			for _, user := range []string{"nobody", "odd"} {
				if r := s.send(t, user, route.Method, path, nil, ""); r.status != http.StatusForbidden {
					t.Errorf("%s: %s %s: %d", user, route.Method, path, r.status)
				}
			}
		})
	})
	t.Run("lets a reader see and not act", func(t *testing.T) {
		everyRoute(t, func(t *testing.T, route dashboard.RouteInfo, path string) {
			r := s.send(t, "rob", route.Method, path, nil, "")
			if route.Level == dashboard.Operator && r.status != http.StatusForbidden {
				t.Errorf("%s %s: %d", route.Method, path, r.status)
			}
			if route.Level == dashboard.ReadOnly && r.status != http.StatusOK && !strings.Contains(path, "UNKNOWN") {
				t.Errorf("%s %s: %d", route.Method, path, r.status)
			}
			if path == "api/openapi.yaml" {
				return // it describes what operators do
			}
			wantsNot(t, r.body, "/retry", "retry-all?", "/discard", "/edit", "keys/skip", "names/pause", "names/resume")
		})
	})
	t.Run("lets nobody act without a name for the record", func(t *testing.T) {
		everyRoute(t, func(t *testing.T, route dashboard.RouteInfo, path string) {
			if r := s.send(t, "nameless", route.Method, path, nil, ""); route.Level == dashboard.Operator && r.status != http.StatusForbidden {
				t.Errorf("%s %s: %d", route.Method, path, r.status)
			}
		})
	})
	t.Run("refuses what another site sends", func(t *testing.T) {
		everyRoute(t, func(t *testing.T, route dashboard.RouteInfo, path string) {
			if route.Method != http.MethodPost {
				return
			}
			for _, header := range []http.Header{
				{"Sec-Fetch-Site": {"cross-site"}}, {"Sec-Fetch-Site": {"same-site"}}, {"Origin": {"https://evil.example"}}, {"Origin": {"null"}},
			} {
				if r := s.send(t, "ann", route.Method, path, header, ""); r.status != http.StatusForbidden {
					t.Errorf("%s %s %v: %d", route.Method, path, header, r.status)
				}
			}
		})
	})
	t.Run("protects every answer by its headers", func(t *testing.T) {
		paths := []string{"nowhere", "messages/", "messages/999999", "messages/x", "assets/none", "api/none"}
		everyRoute(t, func(t *testing.T, route dashboard.RouteInfo, path string) {
			if route.Method == http.MethodGet {
				paths = append(paths, path)
			}
		})
		for _, path := range paths {
			for _, user := range []string{"ann", "rob", ""} {
				h := s.send(t, user, http.MethodGet, path, nil, "").header
				policy := h.Get("Content-Security-Policy")
				if !strings.HasPrefix(policy, "default-src 'self';") || !strings.Contains(policy, "frame-ancestors 'none'") ||
					strings.Contains(policy, "unsafe") || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" {
					t.Errorf("GET %s as %q: %v", path, user, h)
				}
				if cache := h.Get("Cache-Control"); cache != "no-store" && path != "assets/style.css" {
					t.Errorf("GET %s as %q: Cache-Control %q", path, user, cache)
				}
			}
		}
	})
	t.Run("changes nothing on any of this", func(t *testing.T) {
		if after := s.contents(t); after != before {
			t.Errorf("before:\n%s\nafter:\n%s", before, after)
		}
		if act := s.lastAct(); act != "" {
			t.Error(act)
		}
	})
}

func TestATrustedOriginMayAct(t *testing.T) {
	t.Parallel()
	s := newSite(t, testdb.SQLite(t), dashboard.Config{TrustedOrigins: []string{"https://ops.example"}})
	for origin, want := range map[string]int{"https://ops.example": http.StatusOK, "https://ops.example.evil": http.StatusForbidden} {
		header := http.Header{"Origin": {origin}, "Sec-Fetch-Site": {"cross-site"}, "Content-Type": {"application/json"}}
		if r := s.send(t, "ann", http.MethodPost, "api/names/pause", header, `{"name":"order"}`); r.status != want {
			t.Errorf("%s: %d, want %d", origin, r.status, want)
		}
	}
}

func TestGetChangesNothing(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, db *bun.DB) {
		s := newSite(t, db, dashboard.Config{})
		id := s.die(t, 3, "broken", "k")[0]
		if err := s.repo.Pause(t.Context(), "order"); err != nil {
			t.Fatal(err)
		}
		before, acts := s.contents(t), s.lastAct()
		for _, route := range dashboard.Routes() {
			path := sample(route.Pattern, id)
			for _, method := range []string{http.MethodGet, http.MethodHead} {
				r := s.send(t, "ann", method, path, nil, "")
				want := http.StatusOK
				switch {
				case strings.Contains(path, "UNKNOWN") && route.Method == http.MethodGet:
					want = http.StatusNotFound
				case route.Method == http.MethodPost && !hasGet(route.Pattern):
					want = http.StatusMethodNotAllowed
				}
				if r.status != want {
					t.Errorf("%s %s: %d, want %d\n%s", method, path, r.status, want, r.body)
				}
			}
		}
		if after := s.contents(t); after != before {
			t.Errorf("before:\n%s\nafter:\n%s", before, after)
		}
		if s.lastAct() != acts {
			t.Error(s.lastAct())
		}
	})
}

func hasGet(pattern string) bool {
	for _, route := range dashboard.Routes() {
		if route.Method == http.MethodGet && route.Pattern == pattern {
			return true
		}
	}
	return false
}

func TestInsecure(t *testing.T) {
	t.Parallel()
	repo, err := inbox.NewRepository(testdb.SQLite(t), inbox.NewNameMap(), inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := dashboard.New(repo, dashboard.Config{Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]int{
		"localhost": 200, "localhost:8080": 200, "127.0.0.1:8080": 200, "[::1]:8080": 200, "[::1]": 200,
		"evil.example": 421, "evil.example:8080": 421, "localhost.evil.example": 421, "127.0.0.1.evil.example": 421, "": 421,
	} {
		r := httptest.NewRequest(http.MethodGet, "/jobs", nil)
		r.Host = host
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("host %q: %d, want %d", host, w.Code, want)
		}
	}
}
