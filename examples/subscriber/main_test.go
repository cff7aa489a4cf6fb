package main

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/internal/testdb"
)

func TestTheStoryAddsUp(t *testing.T) {
	for name, o := range map[string]func(testing.TB) options{
		"with nothing set up":                         func(testing.TB) options { return options{} },
		"with the inbox on PostgreSQL":                func(t testing.TB) options { return options{dsn: testdb.Postgres(t)} },
		"with topic and inbox in one PostgreSQL":      func(t testing.TB) options { return options{broker: "sql", dsn: testdb.Postgres(t)} },
		"with a topic in PostgreSQL, inbox in SQLite": func(t testing.TB) options { return options{broker: "sql", url: testdb.Postgres(t)} },
		"with RabbitMQ where it answers on its port":  func(t testing.TB) options { answers(t, "127.0.0.1:5672"); return options{broker: "amqp"} },
	} {
		t.Run(name, func(t *testing.T) {
			o := o(t)
			o.messages = 20
			if ok, err := run(t.Context(), o); err != nil || !ok {
				t.Errorf("ok = %v, %v", ok, err)
			}
		})
	}
}

func answers(t testing.TB, address string) {
	connection, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		t.Skipf("nothing answers on %s: %v", address, err)
	}
	_ = connection.Close()
}

func TestACheckThatFailsIsNamed(t *testing.T) {
	p := plan{orders: 2, refused: 1, unreadable: 1}
	good := result{Deliveries: 6, Stored: 3, Duplicates: 2, Rejected: 1, Processed: 2, Dead: 1, Effects: 2}
	if problems := check(good, p); len(problems) > 0 {
		t.Errorf("a good result has problems: %v", problems)
	}
	for name, spoil := range map[string]func(*result){
		"stored":    func(r *result) { r.Stored--; r.Duplicates++ },
		"processed": func(r *result) { r.Processed++ },
		"dead":      func(r *result) { r.Dead = 0 },
		"effects":   func(r *result) { r.Effects++ },
		"add up":    func(r *result) { r.Duplicates++ },
		"rejected":  func(r *result) { r.Rejected, r.Duplicates = 0, 3 },
	} {
		r := good
		spoil(&r)
		if problems := check(r, p); len(problems) == 0 || !strings.Contains(strings.Join(problems, "\n"), name) {
			t.Errorf("%s: %v", name, problems)
		}
	}
}

func TestWrongOptionsAreErrors(t *testing.T) {
	for name, o := range map[string]options{
		"an unknown broker":      {broker: "mqtt"},
		"kafka without a url":    {broker: "kafka"},
		"a url without a broker": {url: "nats://127.0.0.1:4222"},
		"a dsn that is no url":   {dsn: "inbox.db"},
		"sql without a database": {broker: "sql"},
	} {
		if ok, err := run(t.Context(), o); err == nil || ok {
			t.Errorf("%s: ok = %v, %v", name, ok, err)
		}
	}
}
