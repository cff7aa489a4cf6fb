package brokertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/internal/testdb"
)

func toldApart(t *testing.T, broker Broker) {
	url, topic := broker.Open(t)
	b, seen := mustOpenBox(t, testdb.Postgres(t)), &tally{}
	mustConsume(t, broker, url, topic, b, seen)

	var messages []Foreign
	for i := range 10 {
		messages = append(messages, Foreign{ID: fmt.Sprint("m-", i), Name: "order", Body: fmt.Sprintf(`{"n":%d}`, i)})
	}
	bad := []Foreign{
		{ID: "", Name: "order", Body: `{"n":"no id, one"}`},
		{ID: "", Name: "order", Body: `{"n":"no id, two"}`},
		{ID: "x", Name: "", Body: `no name`},
		{ID: "y", Name: "unknown", Body: ``},
	}
	for _, batch := range [][]Foreign{messages, messages, bad} {
		if err := broker.Publish(url, topic, batch); err != nil {
			t.Fatal(err)
		}
	}
	deliveries := 2*len(messages) + len(bad)
	eventually(t, "every delivery is settled", func() bool { return seen.settled() >= deliveries })
	stored, parked := b.counts(t)
	if stored != len(messages) || parked != len(bad) {
		t.Errorf("%d stored, %d parked, want %d and %d", stored, parked, len(messages), len(bad))
	}
	if got := seen.mismatches.Load() + seen.nacked.Load(); got != 0 {
		t.Errorf("%d mismatches, %d nacks", seen.mismatches.Load(), seen.nacked.Load())
	}
	var bodies []string
	if err := b.db.NewRaw(`SELECT convert_from(payload, 'UTF8') FROM inbox_messages ORDER BY message_id`).Scan(t.Context(), &bodies); err != nil {
		t.Fatal(err)
	}
	for i, body := range bodies {
		if body != messages[i].Body {
			t.Errorf("message %d was stored as %q", i, body)
		}
	}
}

func outage(t *testing.T, broker Broker) {
	server := testdb.StartServer(t, testdb.Config{})
	url, topic := broker.Open(t)
	b, seen := mustOpenBox(t, server.DSN()), &tally{}
	mustConsume(t, broker, url, topic, b, seen)

	const count = 200
	if err := server.Stop("fast"); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	for i := range count { // they arrive over the whole outage
		if err := broker.Publish(url, topic, []Foreign{{ID: fmt.Sprint("m-", i), Name: "order", Body: "{}"}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(start.Add(time.Duration(i) * 5 * time.Second / count)))
	}
	nacks := seen.nacked.Load()
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "every message is stored", func() bool {
		stored, _ := b.counts(t)
		return stored == count
	})
	t.Logf("%d nacks during the outage, %d until the end", nacks, seen.nacked.Load())
	// One delivery at a time: 100, 200, 400, 800, 1600, 3200 ms.
	if nacks < 2 || nacks > 10 {
		t.Errorf("%d nacks in 5 s", nacks)
	}
}
