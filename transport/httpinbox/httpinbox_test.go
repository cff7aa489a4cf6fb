package httpinbox_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/mediator"
	"github.com/letterbox-go/letterbox/transport/httpinbox"
)

// Credit is the message of most tests.
type Credit struct {
	ID      string `json:"id,omitempty"`
	Account string `json:"account"`
	Cents   int64  `json:"cents"`
}

func (c Credit) Validate() error {
	if c.Account == "" {
		return errors.New("account is required")
	}
	return nil
}

// Amount and Anything allow bodies that other types would not.
type (
	Amount   int
	Anything struct{}
)

// env is a real server in front of an inbox on a real database.
type env struct {
	db       *bun.DB
	repo     *inbox.Repository
	requests *mediator.RequestMap
	mux      *http.ServeMux
	server   *httptest.Server
	handled  atomic.Int64 // requests whose handler has returned
	log      lockedBuffer
}

func databases(t *testing.T, test func(t *testing.T, db *bun.DB)) {
	for name, open := range map[string]func(testing.TB) *bun.DB{"PostgreSQL": testdb.PGX, "SQLite": testdb.SQLite} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

func newEnv(t *testing.T, db *bun.DB) *env {
	t.Helper()
	e := newEnvUnmigrated(t, db)
	if err := e.repo.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return e
}

func newEnvUnmigrated(t *testing.T, db *bun.DB) *env {
	t.Helper()
	names := inbox.NewNameMap()
	inbox.Register[Credit](names, "credit")
	inbox.Register[Amount](names, "amount")
	inbox.Register[Anything](names, "anything")
	inbox.RegisterWith[*Renamed](names, inbox.Registration{Name: "new", FormerNames: []string{"old"}})
	repo, err := inbox.NewRepository(db, names, inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	e := &env{db: db, repo: repo, requests: mediator.NewRequestMap(), mux: http.NewServeMux()}
	e.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer e.handled.Add(1)
		e.mux.ServeHTTP(w, r)
	}))
	t.Cleanup(e.server.Close)
	return e
}

// Renamed is registered as a pointer, and was called "old" before.
type Renamed struct {
	Note string `json:"note"`
}

// route mounts a handler for T.
func route[T any](t *testing.T, e *env, pattern string, config httpinbox.Config[T]) {
	t.Helper()
	config.Logger = slog.New(slog.NewTextHandler(&e.log, nil))
	handler, err := httpinbox.New(e.repo, config)
	if err != nil {
		t.Fatal(err)
	}
	e.mux.Handle(pattern, handler)
}

// reply is an answer with its body decoded.
type reply struct {
	*http.Response
	text    string
	answer  httpinbox.Answer
	problem httpinbox.Problem
}

func read(t *testing.T, response *http.Response) reply {
	t.Helper()
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	r := reply{Response: response, text: string(body)}
	switch contentType := response.Header.Get("Content-Type"); contentType {
	case "application/json":
		err = json.Unmarshal(body, &r.answer)
	case "application/problem+json":
		err = json.Unmarshal(body, &r.problem)
	default:
		err = fmt.Errorf("content type %q", contentType)
	}
	if err != nil {
		t.Fatalf("%d %s: %v", response.StatusCode, body, err)
	}
	return r
}

// post sends body with header fields "Name: value".
func (e *env) post(t *testing.T, path, body string, header ...string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.server.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for _, field := range header {
		name, value, _ := strings.Cut(field, ": ")
		if name == "Content-Type" {
			r.Header.Set(name, value)
		} else {
			r.Header[name] = append(r.Header[name], value)
		}
	}
	return e.do(t, r)
}

func (e *env) do(t *testing.T, r *http.Request) reply {
	t.Helper()
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	return read(t, response)
}

// raw writes bytes to a socket and reads one answer. Lines end in \n in the
// test and in \r\n on the wire, up to the empty one.
func (e *env) raw(t *testing.T, request string) reply {
	t.Helper()
	conn := e.dial(t, request)
	defer conn.Close()
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(conn)
	for {
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		if response.StatusCode != http.StatusContinue {
			return read(t, response)
		}
	}
}

func (e *env) dial(t *testing.T, request string) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", e.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	head, body, _ := strings.Cut(request, "\n\n")
	if _, err := io.WriteString(conn, strings.ReplaceAll(head, "\n", "\r\n")+"\r\n\r\n"+body); err != nil {
		t.Fatal(err)
	}
	return conn.(*net.TCPConn)
}

func (r reply) expect(t *testing.T, status int, code string) {
	t.Helper()
	if r.StatusCode != status || r.problem.Code != code {
		t.Errorf("%d %s: want %d %q", r.StatusCode, r.text, status, code)
	}
	if status >= 400 && (r.problem.Status != status || r.problem.Title != http.StatusText(status) || r.problem.Detail == "") {
		t.Errorf("the problem is not complete: %s", r.text)
	}
}

func (r reply) expectOutcome(t *testing.T, outcome inbox.OutcomeKind) {
	t.Helper()
	if r.StatusCode != http.StatusAccepted || r.answer.Outcome != outcome.String() {
		t.Errorf("%d %s: want 202 %v", r.StatusCode, r.text, outcome)
	}
}

// stored is a row of the messages table.
type stored struct {
	Source, MessageID, Name string
	Payload                 []byte
	Metadata                string
}

func (e *env) rows(t *testing.T) []stored {
	t.Helper()
	return rowsOf(t, e.db)
}

func rowsOf(t *testing.T, db *bun.DB) []stored {
	t.Helper()
	var rows []stored
	err := db.NewRaw(`SELECT source, message_id, name, payload, metadata FROM inbox_messages ORDER BY id`).Scan(t.Context(), &rows)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// one returns the only row.
func (e *env) one(t *testing.T) stored {
	t.Helper()
	rows := e.rows(t)
	if len(rows) != 1 {
		t.Fatalf("%d rows, want 1: %q", len(rows), rows)
	}
	return rows[0]
}

func (e *env) drain(t *testing.T, config inbox.ProcessorConfig) {
	t.Helper()
	config.Requests = mediator.NewRequestMediator(e.requests)
	p, err := inbox.NewProcessor(e.repo, config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// lockedBuffer is a log that several handlers write.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}
