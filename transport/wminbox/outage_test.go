package wminbox_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/transport/wminbox"
)

// The subscriber redelivers at once, which is the worst that a broker does.
func TestNothingIsLostAndNothingSpinsWhileTheDatabaseIsAwayForFiveSeconds(t *testing.T) {
	t.Parallel()
	server := testdb.StartServer(t, testdb.Config{})
	db, err := testdb.OpenPGX(server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	b := openBox(t, db)
	seen := &record{}
	f := route(t, handlerFor(t, b.repo, wminbox.Config{Reject: b.park, Observer: seen}))

	const messages, rejects = 200, 10
	if err := server.Stop("fast"); err != nil {
		t.Fatal(err)
	}
	restarted := make(chan error, 1)
	time.AfterFunc(5*time.Second, func() { restarted <- server.Start() })
	nacks := make(chan int)
	for i := range messages + rejects {
		uuid := ""
		if i < messages {
			uuid = fmt.Sprint("m-", i)
		}
		go func() { nacks <- f.untilAcked(newMessage(uuid, fmt.Sprint(i), "name", "order")) }()
	}
	total, most := 0, 0
	for range messages + rejects {
		n := <-nacks
		total, most = total+n, max(most, n)
	}
	if err := <-restarted; err != nil {
		t.Fatal(err)
	}
	t.Logf("%d nacks in all, at most %d for one message", total, most)
	if most < 3 || most > 10 {
		t.Errorf("a message was nacked %d times in 5 s", most)
	}
	if got := b.count(t, "inbox_messages"); got != messages {
		t.Errorf("%d messages are stored, want %d", got, messages)
	}
	if got := len(b.parked(t)); got != rejects {
		t.Errorf("%d messages are parked, want %d", got, rejects)
	}
}
