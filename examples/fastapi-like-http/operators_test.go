package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/letterbox-go/letterbox/internal/testdb"
)

func TestTheDashboardIsForOperators(t *testing.T) {
	t.Parallel()
	handler, err := openApp(t, testdb.SQLiteFile(t)).withDashboard(operators{"secret"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	url := serveApp(t, handler)
	get := func(path, name, password string) response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if name+password != "" {
			req.SetBasicAuth(name, password)
		}
		return send(t, req)
	}
	for _, who := range [][2]string{{"", ""}, {"ann", ""}, {"ann", "Secret"}, {"", "secret"}} {
		got := get("/inbox/", who[0], who[1])
		if got.status != http.StatusUnauthorized || !strings.HasPrefix(got.header.Get("WWW-Authenticate"), "Basic ") {
			t.Errorf("%q: %d %v", who, got.status, got.header)
		}
	}
	if got := get("/inbox/", "ann", "secret"); got.status != http.StatusOK || !strings.Contains(got.body, "Pix inbox") {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := get("/inbox/stats", "", ""); got.status != http.StatusOK || !strings.Contains(got.body, `"pending"`) {
		t.Errorf("the API: %d %s", got.status, got.body)
	}
	wantProblem(t, get("/nowhere", "", ""), http.StatusNotFound)
}
