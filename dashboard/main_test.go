package dashboard_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/dashboard"
	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/mediator"
)

// order is the message of the tests: its handler fails with Fail.
type order struct {
	Item string `json:"item"`
	Fail string `json:"fail,omitempty"`
}

// site is a dashboard under a prefix, and the inbox behind it.
type site struct {
	*httptest.Server
	db    *bun.DB
	names *inbox.NameMap
	repo  *inbox.Repository
	proc  *inbox.Processor
	root  string // the address of the overview, with its slash
	log   *buffer

	mu   sync.Mutex
	acts []inbox.Observation // what operators did
}

// Start lets site observe.
func (s *site) Start(ctx context.Context, _ []inbox.Info) context.Context { return ctx }

// Observe notes what operators did.
func (s *site) Observe(_ context.Context, o inbox.Observation) {
	if o.Kind == inbox.SawAction {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.acts = append(s.acts, o)
	}
}

// lastAct says what an operator did last, and who.
func (s *site) lastAct() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.acts) == 0 {
		return ""
	}
	o := s.acts[len(s.acts)-1]
	return fmt.Sprintf("%s by %s: %d", o.Action, o.Actor, o.Count)
}

// byName lets people in by a header: "ann" is an operator, "rob" a reader.
func byName(r *http.Request) (string, dashboard.Level, error) {
	switch name := r.Header.Get("X-User"); name {
	case "ann":
		return name, dashboard.Operator, nil
	case "rob":
		return name, dashboard.ReadOnly, nil
	case "nobody":
		return name, dashboard.None, nil
	case "odd":
		return name, dashboard.Level(9), nil
	case "nameless":
		return "", dashboard.Operator, nil
	}
	return "", dashboard.None, errors.New("who are you?")
}

// databases runs a test on each kind.
func databases(t *testing.T, test func(t *testing.T, db *bun.DB)) {
	t.Helper()
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		test(t, testdb.PGX(t))
	})
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		test(t, testdb.SQLite(t))
	})
}

func newSite(t testing.TB, db *bun.DB, config dashboard.Config) *site {
	t.Helper()
	return newSiteAt(t, db, config, "/inbox/")
}

func newSiteAt(t testing.TB, db *bun.DB, config dashboard.Config, prefix string) *site {
	t.Helper()
	s := &site{db: db, names: inbox.NewNameMap(), log: &buffer{}}
	inbox.Register[order](s.names, "order")
	requests := mediator.NewRequestMap()
	mediator.BindCommand(requests, func(_ context.Context, o order) error {
		if o.Fail != "" {
			return errors.New(o.Fail)
		}
		return nil
	})
	var err error
	if s.repo, err = inbox.NewRepository(db, s.names, inbox.Config{Observer: s, MaxPayload: 8 << 20}); err != nil {
		t.Fatal(err)
	}
	if err := s.repo.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.proc, err = inbox.NewProcessor(s.repo, inbox.ProcessorConfig{Requests: mediator.NewRequestMediator(requests), MaxAttempts: 1})
	if err != nil {
		t.Fatal(err)
	}
	if config.Authorise == nil && !config.Insecure {
		config.Authorise = byName
	}
	config.Logger = slog.New(slog.NewTextHandler(s.log, nil))
	handler, err := dashboard.New(s.repo, config)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(prefix, http.StripPrefix(strings.TrimSuffix(prefix, "/"), handler))
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	s.root = s.URL + prefix
	return s
}

func (s *site) accept(t testing.TB, entries ...inbox.Entry) []int64 {
	t.Helper()
	outcomes, err := s.repo.Accept(t.Context(), entries)
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]int64, len(outcomes))
	for i, o := range outcomes {
		ids[i] = o.ID
	}
	return ids
}

func (s *site) drain(t testing.TB) {
	t.Helper()
	if _, err := s.proc.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// die accepts messages that fail, and lets them die.
func (s *site) die(t testing.TB, n int, reason, key string) []int64 {
	t.Helper()
	entries := make([]inbox.Entry, n)
	for i := range entries {
		entries[i] = inbox.Entry{
			MessageID: fmt.Sprintf("%s-%s-%05d", reason, key, i), Source: "shop",
			Message: order{Item: "pen", Fail: reason}, OrderingKey: key,
		}
	}
	ids := s.accept(t, entries...)
	s.drain(t)
	return ids
}

// reply is an answer, read whole.
type reply struct {
	status int
	header http.Header
	body   string
}

// send sends a request and does not follow redirects.
func (s *site) send(t testing.TB, user, method, path string, header http.Header, body string) reply {
	t.Helper()
	target := path
	if !strings.HasPrefix(path, "http://") {
		target = s.root + path
	}
	r, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for key, values := range header {
		r.Header[key] = values
	}
	r.Header.Set("X-User", user)
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{answer.StatusCode, answer.Header, string(text)}
}

func (s *site) get(t testing.TB, path string) reply {
	t.Helper()
	return s.send(t, "ann", http.MethodGet, path, nil, "")
}

// page gets a page that has to be there.
func (s *site) page(t testing.TB, path string) string {
	t.Helper()
	r := s.get(t, path)
	if r.status != http.StatusOK {
		t.Fatalf("GET %s: %d\n%s", path, r.status, r.body)
	}
	return r.body
}

// post sends a form as the operator.
func (s *site) post(t testing.TB, path string, fields ...string) reply {
	t.Helper()
	form := url.Values{}
	for i := 0; i < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	header := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
	return s.send(t, "ann", http.MethodPost, path, header, form.Encode())
}

// follow posts a form and gets the page that it leads to.
func (s *site) follow(t testing.TB, path string, fields ...string) string {
	t.Helper()
	r := s.post(t, path, fields...)
	if r.status != http.StatusSeeOther {
		t.Fatalf("POST %s: %d\n%s", path, r.status, r.body)
	}
	base, err := url.Parse(s.root + path)
	if err != nil {
		t.Fatal(err)
	}
	target, err := base.Parse(r.header.Get("Location"))
	if err != nil {
		t.Fatal(err)
	}
	return s.page(t, target.String())
}

// api calls the API as the operator and reads its answer.
func (s *site) api(t testing.TB, method, path, body string, answer any) int {
	t.Helper()
	header := http.Header{}
	if body != "" {
		header.Set("Content-Type", "application/json")
	}
	r := s.send(t, "ann", method, path, header, body)
	if answer != nil {
		if err := json.Unmarshal([]byte(r.body), answer); err != nil {
			t.Fatalf("%s %s: %d %v\n%s", method, path, r.status, err, r.body)
		}
	}
	return r.status
}

func (s *site) detail(t testing.TB, id int64) inbox.Detail {
	t.Helper()
	detail, err := s.repo.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return detail
}

// contents is all that the tables hold, but for what processors write anyway.
func (s *site) contents(t testing.TB) string {
	t.Helper()
	var all strings.Builder
	for _, table := range []string{"messages", "queue", "attempts", "pauses", "minutes", "processors"} {
		var rows []map[string]any
		if err := s.db.NewRaw("SELECT * FROM ? ORDER BY 1", bun.Ident("inbox_"+table)).Scan(t.Context(), &rows); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&all, table, rows)
	}
	return all.String()
}

func wants(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in\n%s", part, text)
		}
	}
}

func wantsNot(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if strings.Contains(text, part) {
			t.Errorf("%q is in\n%s", part, text)
		}
	}
}

// field returns the value of a hidden field.
func field(t testing.TB, page, name string) string {
	t.Helper()
	match := regexp.MustCompile(`name="` + name + `" value="([^"]*)"`).FindStringSubmatch(page)
	if match == nil {
		t.Fatalf("no field %q in\n%s", name, page)
	}
	return strings.NewReplacer("&#43;", "+", "&#61;", "=", "&amp;", "&").Replace(match[1])
}

// eventually polls until ok is true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// buffer is a buffer for several writers.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
