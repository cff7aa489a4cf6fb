package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/internal/testdb"
)

// envMain makes this test binary the program itself, for tests that need a
// process of its own.
const envMain = "LETTERBOX_EXAMPLE_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(envMain) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// onBoth runs a test on SQLite and on PostgreSQL, each time with the -dsn of an
// empty database.
func onBoth(t *testing.T, test func(t *testing.T, dsn string)) {
	for name, dsn := range map[string]func(testing.TB) string{"sqlite": testdb.SQLiteFile, "postgres": testdb.Postgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, dsn(t))
		})
	}
}

var discard = slog.New(slog.DiscardHandler)

func openApp(t *testing.T, dsn string) *app {
	t.Helper()
	db, err := openDatabase(dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	app, err := newApp(t.Context(), db, discard)
	if err != nil {
		t.Fatal(err)
	}
	return app
}

// serveApp serves the routes on a real socket and returns the URL.
func serveApp(t *testing.T, handler http.Handler) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

// response is an answer, read.
type response struct {
	status int
	header http.Header
	body   string
}

func do(t *testing.T, method, url, mediaType, body string) response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if mediaType != "" {
		req.Header.Set("Content-Type", mediaType)
	}
	return send(t, req)
}

func send(t *testing.T, req *http.Request) response {
	t.Helper()
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(text, []byte("$schema")) {
		t.Errorf("the answer contains $schema: %s", text)
	}
	return response{answer.StatusCode, answer.Header, string(text)}
}

func post(t *testing.T, url, body string) response {
	t.Helper()
	return do(t, http.MethodPost, url+"/webhooks/pix", "application/json", body)
}

// wantProblem checks that an answer is an error as RFC 9457 describes it.
func wantProblem(t *testing.T, got response, status int) {
	t.Helper()
	if got.status != status {
		t.Errorf("status %d, want %d; body %s", got.status, status, got.body)
	}
	if ct := got.header.Get("Content-Type"); ct != "application/problem+json" {
		t.Errorf("content type %q, want application/problem+json", ct)
	}
	var problem struct {
		Title  string
		Status int
	}
	if err := json.Unmarshal([]byte(got.body), &problem); err != nil || problem.Status != status || problem.Title == "" {
		t.Errorf("no problem with status %d and a title: %s (%v)", status, got.body, err)
	}
}

// wantReceipt checks the answer to a webhook.
func wantReceipt(t *testing.T, got response, want receipt) {
	t.Helper()
	var answer receipt
	if got.status != http.StatusAccepted {
		t.Fatalf("status %d, want 202; body %s", got.status, got.body)
	}
	if err := json.Unmarshal([]byte(got.body), &answer); err != nil || answer != want {
		t.Errorf("got %s (%v), want %+v", got.body, err, want)
	}
}

// stored counts the messages in the inbox.
func stored(t *testing.T, a *app) (n int) {
	t.Helper()
	if err := a.db.QueryRowContext(t.Context(), "SELECT count(*) FROM inbox_messages").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// eventually waits for a condition, which says what is still wrong.
func eventually(t *testing.T, condition func() (wrong string)) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		wrong := condition()
		if wrong == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(wrong)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// inBackground runs a task until the test ends, and checks that it ends well.
func inBackground(t *testing.T, task func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- task(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

const (
	idA = "E12345678202601151230aaaaaaaaaaa"
	idB = "E12345678202601151230bbbbbbbbbbb"
	idC = "E12345678202601151230ccccccccccc"
)

// pix returns a notification for Ana.
func pix(id, valor string) string {
	return `{"endToEndId":"` + id + `","txid":"t1","valor":"` + valor + `","horario":"2026-01-15T12:30:05Z","chave":"ana@example.com"}`
}

func body(items ...string) string { return `{"pix":[` + strings.Join(items, ",") + `]}` }
