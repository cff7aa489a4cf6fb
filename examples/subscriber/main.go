// Command subscriber shows the inbox behind a message broker: producers that send
// every message up to three times, one of them without Watermill; a subscriber that
// acks after COMMIT; a processor; one effect per message.
//
//	go run ./examples/subscriber
//
// needs nothing: it runs NATS JetStream in this process and keeps the inbox in a
// SQLite file, both in a temporary directory. -broker and -url choose a real broker,
// -dsn a PostgreSQL. The last line is one JSON object; the exit code is 1 when it
// does not add up.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	var o options
	flag.StringVar(&o.broker, "broker", "", "nats, amqp, kafka or sql; default: NATS in this process")
	flag.StringVar(&o.url, "url", "", "where the broker is; default: its usual loopback port (kafka: required)")
	flag.StringVar(&o.dsn, "dsn", "", "postgres://... for the inbox; default: a temporary SQLite file")
	flag.IntVar(&o.messages, "messages", 60, "how many distinct messages each producer sends")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := run(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "subscriber:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

type options struct {
	broker, url, dsn string
	messages         int
}

// result is the last line of output.
type result struct {
	Deliveries int  `json:"deliveries"` // that the subscriber settled
	Stored     int  `json:"stored"`
	Duplicates int  `json:"duplicates"`
	Rejected   int  `json:"rejected"`
	Processed  int  `json:"processed"`
	Dead       int  `json:"dead"`
	Effects    int  `json:"effects"` // rows the handler wrote
	OK         bool `json:"ok"`
}

func run(ctx context.Context, o options) (ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "letterbox-subscriber-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))

	broker, err := openBroker(ctx, o, dir)
	if err != nil {
		return false, fmt.Errorf("broker: %w", err)
	}
	defer broker.close()
	app, err := openApp(ctx, o.dsn, dir, logger)
	if err != nil {
		return false, fmt.Errorf("inbox: %w", err)
	}
	defer app.close()

	plan := newPlan(o.messages)
	fmt.Printf("%s, inbox on %s: %d deliveries of %d messages\n", broker.name, app.where, plan.deliveries(), plan.distinct())
	got, problems, err := play(ctx, broker, app, plan)
	if err != nil {
		return false, err
	}
	for _, problem := range problems {
		fmt.Println("wrong:", problem)
	}
	line, err := json.Marshal(got)
	if err != nil {
		return false, err
	}
	fmt.Println(strings.TrimSpace(string(line)))
	return got.OK, nil
}
