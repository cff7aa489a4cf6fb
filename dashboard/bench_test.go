package dashboard_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/letterbox-go/letterbox/dashboard"
	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

// benchRows is how many processed messages BenchmarkPages puts into the
// database; a sixtieth of that is dead. 3000000 is a month of a busy service.
const benchRows = "LETTERBOX_DASHBOARD_ROWS"

// BenchmarkPages measures each page over a large history on PostgreSQL:
//
//	LETTERBOX_DASHBOARD_ROWS=3000000 go test -run '^$' -bench Pages -benchtime 5x ./dashboard
func BenchmarkPages(b *testing.B) {
	rows, err := strconv.Atoi(os.Getenv(benchRows))
	if err != nil {
		b.Skip("set " + benchRows + " to a number of messages")
	}
	s := newSite(b, testdb.PGX(b), dashboard.Config{})
	dead := s.history(b, rows)
	for _, path := range []string{
		"", "messages", "messages?status=dead", "messages?status=processed", "messages?status=failing", "messages?name=order&status=dead",
		"messages?id=m1500", "messages?source=shop", "messages?error=unreachable", "messages?name=never", fmt.Sprintf("messages/%d", dead),
		"dead", "names", "retry-all", "doctor", "api/stats",
	} {
		b.Run("/"+path, func(b *testing.B) {
			for b.Loop() {
				s.page(b, path)
			}
		})
	}
}

// history fills the tables as if rows messages had been processed and a
// sixtieth had died, the last of them with a payload of 5 MB.
func (s *site) history(b *testing.B, rows int) (dead int64) {
	b.Helper()
	for _, statement := range []string{
		`INSERT INTO inbox_messages (id, source, message_id, name, payload, metadata, status, attempts, last_error, ordering_key, received_at, processed_at)
		SELECT g, 'shop', 'm' || g, 'order', '{"item":"pen"}', '{}', CASE WHEN g % 61 = 0 THEN 2 ELSE 1 END, CASE WHEN g % 61 = 0 THEN 5 ELSE 0 END,
			CASE WHEN g % 61 = 0 THEN 'ledger ' || g % 7 || ' is unreachable' ELSE '' END, '', now() - make_interval(secs => ? - g),
			CASE WHEN g % 61 = 0 THEN NULL ELSE now() END
		FROM generate_series(1, ?) g`,
		`INSERT INTO inbox_queue (id, name, ordering_key, due, attempts, state)
		SELECT g, 'order', '', now(), 5, 2 FROM generate_series(1, ?) g WHERE g % 61 = 0 AND ? > 0`,
	} {
		if _, err := s.db.NewRaw(statement, rows, rows).Exec(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	for _, statement := range []string{
		"SELECT setval(pg_get_serial_sequence('inbox_messages', 'id'), (SELECT max(id) FROM inbox_messages))",
		"VACUUM ANALYZE inbox_messages", "VACUUM ANALYZE inbox_queue",
	} {
		if _, err := s.db.NewRaw(statement).Exec(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	large := make([]byte, 5<<20)
	for i := range large {
		large[i] = 'x'
	}
	entries := make([]inbox.Entry, 3)
	for i := range entries {
		entries[i] = inbox.Entry{MessageID: fmt.Sprintf("large-%d", i), Message: order{Item: string(large), Fail: "too large"}}
	}
	for _, entry := range entries {
		dead = s.accept(b, entry)[0]
	}
	s.drain(b)
	return dead
}
