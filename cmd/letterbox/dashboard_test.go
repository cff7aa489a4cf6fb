package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// lockedBuffer may be read while it is written.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

var address = regexp.MustCompile(`http://[^ ]+/`)

func TestDashboardIsLocalAndReadOnly(t *testing.T) {
	t.Parallel()
	p := sqlitePlace(t)
	p.fill(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stderr lockedBuffer
	done := make(chan int, 1)
	go func() {
		done <- run(ctx, []string{"dashboard", "--listen", "127.0.0.1:0", "--database-url", p.url}, strings.NewReader(""), io.Discard, &stderr)
	}()
	url := ""
	for deadline := time.Now().Add(60 * time.Second); url == ""; url = address.FindString(stderr.String()) {
		if time.Now().After(deadline) {
			t.Fatal(stderr.String())
		}
		time.Sleep(5 * time.Millisecond)
	}
	ask := func(method, path, host string) (int, string) {
		request, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(url, "/")+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if host != "" {
			request.Host = host
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(body)
	}
	if code, body := ask("GET", "/", ""); code != 200 || !strings.Contains(body, "credit") {
		t.Errorf("the first page: %d\n%s", code, body)
	}
	if code, _ := ask("GET", "/", "evil.example"); code != 403 {
		t.Errorf("another host: %d", code)
	}
	if code, _ := ask("POST", "/api/messages/6/retry", ""); code < 400 {
		t.Errorf("a visitor acted: %d", code)
	}
	if d, err := p.repo.Get(ctx, 6); err != nil || d.DiedAt.IsZero() {
		t.Errorf("message 6: %v %v", d.Kind, err)
	}
	cancel()
	if code := <-done; code != 0 {
		t.Errorf("exit code %d: %s", code, stderr.String())
	}
}

func TestLocalOnly(t *testing.T) {
	t.Parallel()
	handler := localOnly(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for host, want := range map[string]int{
		"localhost:8080": 200, "127.0.0.1": 200, "[::1]:80": 200, "[::1]": 200, "10.0.0.1": 403, "localhost.evil.example": 403, "": 403,
	} {
		response := httptest.NewRecorder()
		request := httptest.NewRequest("GET", "/", nil)
		request.Host = host
		handler.ServeHTTP(response, request)
		if response.Code != want {
			t.Errorf("host %q: %d, want %d", host, response.Code, want)
		}
	}
}
