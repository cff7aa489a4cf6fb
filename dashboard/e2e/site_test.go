package e2e_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/dashboard"
	"github.com/letterbox-go/letterbox/doctor"
	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/mediator"
)

var (
	messages    = flag.Int("messages", 5000, "how many messages are in the inbox, at least 1000")
	screenshots = flag.Bool("screenshots", false, "write docs/images")
)

// The messages of a shop. Fate says what their handler does.
type (
	payment struct {
		Account string `json:"account"`
		Amount  string `json:"amount"`
		Fate    string `json:"note,omitempty"`
	}
	shipment struct {
		Order string `json:"order"`
		Items int    `json:"items"`
		Fate  string `json:"note,omitempty"`
	}
	receipt struct {
		Email string `json:"email"`
		Fate  string `json:"note,omitempty"`
	}
)

// handle does what a fate says: "", "later: reason" or the reason of a death.
func handle(fate string) error {
	switch {
	case fate == "":
		return nil
	case len(fate) > 7 && fate[:7] == "later: ":
		return inbox.RetryAfter(20*time.Minute, errors.New(fate[7:]))
	}
	return inbox.Permanent(errors.New(fate))
}

// site is a shop's inbox with a dashboard and a running processor.
type site struct {
	*httptest.Server
	repo *inbox.Repository
	proc *inbox.Processor
	db   *bun.DB
	root string
	held []int64 // messages of the key that is held up

	first bool // the one that is photographed
}

func databases(t *testing.T, test func(t *testing.T, s *site)) {
	browserPath(t)
	t.Run("PostgreSQL", func(t *testing.T) {
		s := newSite(t, testdb.PGX(t), *messages)
		s.first = true
		test(t, s)
	})
	t.Run("SQLite", func(t *testing.T) { test(t, newSite(t, testdb.SQLite(t), min(*messages, 5000))) })
}

func newSite(t *testing.T, db *bun.DB, n int) *site {
	t.Helper()
	names := inbox.NewNameMap()
	inbox.Register[payment](names, "credit_account")
	inbox.Register[shipment](names, "ship_order")
	inbox.Register[receipt](names, "send_receipt")
	requests := mediator.NewRequestMap()
	mediator.BindCommand(requests, func(_ context.Context, m payment) error {
		if _, cents, _ := strings.Cut(m.Amount, "."); len(cents) > 2 {
			return handle("ledger: amount has more digits than the currency")
		}
		return handle(m.Fate)
	})
	mediator.BindCommand(requests, func(_ context.Context, m shipment) error { return handle(m.Fate) })
	mediator.BindCommand(requests, func(_ context.Context, m receipt) error { return handle(m.Fate) })
	s := &site{db: db}
	var err error
	if s.repo, err = inbox.NewRepository(db, names, inbox.Config{}); err != nil {
		t.Fatal(err)
	}
	if err := s.repo.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	config := inbox.ProcessorConfig{Requests: mediator.NewRequestMediator(requests), PollInterval: 50 * time.Millisecond}
	if s.proc, err = inbox.NewProcessor(s.repo, config); err != nil {
		t.Fatal(err)
	}
	past, err := inbox.NewProcessor(s.repo, config) // its counters are not the hour's
	if err != nil {
		t.Fatal(err)
	}
	handler, err := dashboard.New(s.repo, dashboard.Config{
		Authorise: authorise, TraceURL: "https://traces.example.com/trace/{trace}", Title: "Shop inbox", RetryRate: 200,
		Doctor: doctor.Config{Ignore: []string{"fsync-off", "full-page-writes-off", "synchronous-commit-off"}}, // this server is for tests
	})
	if err != nil {
		t.Fatal(err)
	}
	s.fill(t, past, n)
	s.run(t)
	mux := http.NewServeMux()
	mux.Handle("/inbox/", http.StripPrefix("/inbox", handler))
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	s.root = s.URL + "/inbox/"
	return s
}

func authorise(r *http.Request) (string, dashboard.Level, error) {
	switch name := r.Header.Get("X-User"); name {
	case "ann@shop.example":
		return name, dashboard.Operator, nil
	case "rob@shop.example":
		return name, dashboard.ReadOnly, nil
	}
	return "", dashboard.None, errors.New("not logged in")
}

// run runs the processor until the test ends.
func (s *site) run(t *testing.T) {
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.proc.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func (s *site) accept(t *testing.T, entries ...inbox.Entry) []int64 {
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

// fill makes a history with some trouble in it, and an hour of counters.
func (s *site) fill(t *testing.T, past *inbox.Processor, n int) {
	t.Helper()
	for done := 0; done < n; {
		var entries []inbox.Entry
		for ; done < n && len(entries) < 1000; done++ {
			entries = append(entries, ordinary(done, n))
		}
		s.accept(t, entries...)
	}
	const key = "order 20488"
	s.held = s.accept(t,
		inbox.Entry{MessageID: "ord-20488-1", Source: "kafka:orders.v1", OrderingKey: key, Message: shipment{"20488", 2, "warehouse: no stock record for sku 1188-B"}},
		inbox.Entry{MessageID: "ord-20488-2", Source: "kafka:orders.v1", OrderingKey: key, Message: shipment{"20488", 1, ""}},
		inbox.Entry{MessageID: "ord-20488-3", Source: "kafka:orders.v1", OrderingKey: key, Message: shipment{"20488", 4, ""}})
	if _, err := past.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.db.NewRaw("DELETE FROM inbox_minutes").Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC().Truncate(time.Minute)
	for minute := range 59 {
		processed := 180 + (minute*37)%70 - minute/2
		failed := 0
		if minute > 14 && minute < 23 {
			processed, failed = processed/2, 24+(minute*13)%30
		}
		s.count(t, now.Add(-time.Duration(minute+1)*time.Minute), "credit_account", processed, failed)
		s.count(t, now.Add(-time.Duration(minute+1)*time.Minute), "ship_order", processed/3, 0)
	}
}

func (s *site) count(t *testing.T, minute time.Time, name string, processed, failed int) {
	t.Helper()
	_, err := s.db.NewRaw("INSERT INTO inbox_minutes (minute, name, processed, failed, died) VALUES (?, ?, ?, ?, 0)",
		minute.Format("2006-01-02T15:04:05.000000Z"), name, processed, failed).Exec(t.Context())
	if err != nil {
		t.Fatal(err)
	}
}

// ordinary is one of n messages; the newest 400 have some trouble among them.
func ordinary(i, n int) inbox.Entry {
	fate, late := "", n-i
	switch {
	case late > 400:
	case late%21 == 3:
		fate = "ledger: account is closed"
	case late%53 == 17:
		fate = "later: ledger: 503 from https://ledger.internal/entries: try again"
	}
	metadata := map[string]string{"traceparent": fmt.Sprintf("00-4bf92f3577b34da6a3ce929d%08x-00f067aa0ba902b7-01", i+1), "tenant": "north", "content-type": "application/json"}
	switch i % 4 {
	case 1:
		if fate != "" && fate[0] == 'l' && fate[1] == 'e' {
			fate = "mail: 550 mailbox unavailable"
		}
		return inbox.Entry{MessageID: fmt.Sprintf("rcp-%07d", i), Source: "psp-x", Message: receipt{fmt.Sprintf("customer%d@example.com", i), fate}, Metadata: metadata}
	case 2:
		return inbox.Entry{MessageID: fmt.Sprintf("ord-%07d", i), Source: "kafka:orders.v1", Message: shipment{fmt.Sprint(10000 + i), 1 + i%5, ""}, OrderingKey: fmt.Sprintf("order %d", 10000+i/8), Metadata: metadata}
	}
	amount := fmt.Sprintf("%d.%02d", 5+i%400, i%100)
	if late <= 400 && late%43 == 11 {
		amount += "5"
	}
	return inbox.Entry{MessageID: fmt.Sprintf("evt_%07d", i), Source: "psp-x", Message: payment{fmt.Sprintf("acc-%05d", i%977), amount, fate}, Metadata: metadata}
}

// dead returns a dead message whose error contains a text.
func (s *site) dead(t *testing.T, text string) inbox.Summary {
	t.Helper()
	list, _, err := s.repo.List(t.Context(), inbox.Filter{Status: inbox.Dead, ErrorContains: text}, inbox.Page{Limit: 1})
	if err != nil || len(list) == 0 {
		t.Fatalf("no dead message with %q: %v", text, err)
	}
	return list[0]
}

func (s *site) detail(t *testing.T, id int64) inbox.Detail {
	t.Helper()
	detail, err := s.repo.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return detail
}

// becomes waits for the processor to bring a message into a status.
func (s *site) becomes(t *testing.T, id int64, kind inbox.StatusKind) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); s.detail(t, id).Kind != kind; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("message %d is %v, want %v", id, s.detail(t, id).Kind, kind)
		}
	}
}
