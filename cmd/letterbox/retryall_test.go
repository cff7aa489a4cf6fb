package main

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/mediator"
)

// envMessages makes TestRetryAllBesideAProcessor larger: 100000, for example.
const envMessages = "LETTERBOX_TEST_RETRY_ALL"

type effect struct {
	ID int `json:"id"`
}

func TestRetryAllBesideAProcessor(t *testing.T) {
	t.Parallel()
	messages := 3000
	if text := os.Getenv(envMessages); text != "" {
		var err error
		if messages, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	places(t, func(t *testing.T, p *place) {
		if code, _, stderr := p.call(t, "", "migrate", "up"); code != 0 {
			t.Fatal(stderr)
		}
		p.exec(t, `CREATE TABLE effects (id integer NOT NULL)`)
		names := inbox.NewNameMap()
		inbox.Register[effect](names, "effect")
		repo, err := inbox.NewRepository(p.db, names, inbox.Config{})
		if err != nil {
			t.Fatal(err)
		}
		requests := mediator.NewRequestMap()
		mediator.BindCommand(requests, func(ctx context.Context, e effect) error {
			_, err := inbox.DB(ctx, p.db).NewRaw(`INSERT INTO effects VALUES (?)`, e.ID).Exec(ctx)
			return err
		})
		proc, err := inbox.NewProcessor(repo, inbox.ProcessorConfig{
			Requests: mediator.NewRequestMediator(requests), PollInterval: 20 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		for from := 0; from < messages; from += 1000 {
			var entries []inbox.Entry
			for i := from; i < min(from+1000, messages); i++ {
				id := strconv.Itoa(i)
				entries = append(entries, inbox.Entry{MessageID: id, Message: inbox.Raw{Name: "effect", Payload: []byte(`{"id":` + id + `}`)}})
			}
			if _, err := repo.Accept(t.Context(), entries); err != nil {
				t.Fatal(err)
			}
		}
		p.exec(t, `UPDATE inbox_queue SET state = 2, attempts = 5`, `UPDATE inbox_messages SET status = 2, attempts = 5, last_error = 'down'`)

		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- proc.Run(ctx) }()
		// Two operators at once, and one of them twice.
		second := make(chan string, 1)
		go func() {
			_, stdout, stderr := p.call(t, "", "retry-all", "--error", "DOWN", "--yes", "--batch-size", "70")
			second <- stdout + stderr
		}()
		code, stdout, stderr := p.call(t, "", "retry-all", "--name", "effect", "--yes", "--batch-size", "100")
		if code != 0 || !strings.Contains(stdout, "Retried ") || strings.Contains(stderr, "\r") {
			t.Errorf("%d %q %q", code, stdout, stderr)
		}
		t.Logf("%s%s", stdout, <-second)
		if code, stdout, _ := p.call(t, "", "retry-all", "--yes"); code != 0 {
			t.Error(stdout)
		}
		deadline := time.Now().Add(10 * time.Minute)
		for {
			stats, err := repo.Stats(t.Context())
			if err == nil && stats.Pending+stats.Dead == 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%+v %v", stats, err)
			}
			time.Sleep(20 * time.Millisecond)
		}
		cancel()
		if err := <-ran; err != nil {
			t.Fatal(err)
		}
		var count struct{ All, Distinct int }
		if err := p.db.NewRaw(`SELECT count(*) AS "all", count(DISTINCT id) AS "distinct" FROM effects`).Scan(t.Context(), &count); err != nil {
			t.Fatal(err)
		}
		if count.All != messages || count.Distinct != messages {
			t.Errorf("%d messages, %d effects of %d", messages, count.All, count.Distinct)
		}
	})
}
