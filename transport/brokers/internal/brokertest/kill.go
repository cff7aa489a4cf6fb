package brokertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/internal/testdb"
)

// childVariable tells a test binary that it is the subscriber to be killed.
const childVariable = "LETTERBOX_BROKER_CHILD"

type child struct {
	URL, Topic, DSN string
	After           int // the delivery before whose ack the child dies
}

// Child does nothing in a test process. In a child process that a test started,
// it subscribes and never returns.
func Child(broker Broker) {
	text, ok := os.LookupEnv(childVariable)
	if !ok {
		return
	}
	fmt.Fprintln(os.Stderr, subscribeAndDie(broker, text))
	os.Exit(1)
}

// subscribeAndDie returns only when something went wrong.
func subscribeAndDie(broker Broker, text string) error {
	var c child
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	b, err := openBox(context.Background(), c.DSN)
	if err != nil {
		return err
	}
	var deliveries atomic.Int64
	_, err = consume(broker, c.URL, c.Topic, b, nil, func() {
		if deliveries.Add(1) == int64(c.After) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	})
	if err != nil {
		return err
	}
	time.Sleep(patience)
	return errors.New("nothing came")
}

func killed(t *testing.T, broker Broker) {
	const rounds, count = 20, 60
	url, topic := broker.Open(t)
	dsn := testdb.Postgres(t)
	b := mustOpenBox(t, dsn)
	var messages []Foreign
	for i := range count {
		messages = append(messages, Foreign{ID: fmt.Sprint("m-", i), Name: "order", Body: fmt.Sprint(i)})
	}
	if err := broker.Publish(url, topic, messages); err != nil {
		t.Fatal(err)
	}
	for round := range rounds {
		runChild(t, child{url, topic, dsn, 1 + round%3})
	}
	// Each child committed one message that it did not ack; those come again.
	before, _ := b.counts(t)
	if before == 0 || before > count {
		t.Fatalf("%d messages are stored after %d kills", before, rounds)
	}
	seen := &tally{}
	mustConsume(t, broker, url, topic, b, seen)
	eventually(t, "all messages are stored and the last unacked one came again", func() bool {
		stored, _ := b.counts(t)
		return stored >= count && seen.duplicates.Load() >= 1
	})
	stored, parked := b.counts(t)
	if stored != count || parked != 0 {
		t.Errorf("%d stored, %d parked, want %d and 0", stored, parked, count)
	}
	if int(seen.stored.Load()) != count-before {
		t.Errorf("the last subscriber stored %d messages, %d were missing", seen.stored.Load(), count-before)
	}
}

// runChild runs the test binary as a subscriber until it has killed itself.
func runChild(t *testing.T, c child) {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	command := exec.CommandContext(ctx, os.Args[0])
	command.Env = append(os.Environ(), childVariable+"="+string(text))
	output, err := command.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL || ctx.Err() != nil {
		t.Fatalf("the child did not kill itself: %v\n%s", err, output)
	}
}
