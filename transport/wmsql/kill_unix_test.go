//go:build unix

package wmsql_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"

	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/transport/wminbox"
)

const (
	childDSN   = "LETTERBOX_WMSQL_CHILD"
	childAfter = "LETTERBOX_WMSQL_AFTER"
)

func TestASubscriberKilledBeforeItsAckLosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	dsn := testdb.Postgres(t)
	s := open(t, dsn)
	const rounds, count = 20, 60
	var want []string
	for i := range count {
		want = append(want, fmt.Sprintf("m-%03d", i))
		s.publish(t, want[i])
	}
	for round := range rounds {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		command := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestChild$")
		command.Env = append(os.Environ(), childDSN+"="+dsn, childAfter+"="+strconv.Itoa(1+round%3))
		output, err := command.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL || ctx.Err() != nil {
			t.Fatalf("the child did not kill itself: %v\n%s", err, output)
		}
		cancel()
	}
	s.run(t, wminbox.Config{})
	s.eventuallyAcked(t, count)
	if diff := cmp.Diff(want, s.ids(t)); diff != "" {
		t.Error(diff)
	}
}

// TestChild is the subscriber that kills itself; without the variable it has nothing to do.
func TestChild(t *testing.T) {
	dsn := os.Getenv(childDSN)
	if dsn == "" {
		t.Skip("runs as a child process of another test")
	}
	after, err := strconv.Atoi(os.Getenv(childAfter))
	if err != nil {
		t.Fatal(err)
	}
	var deliveries atomic.Int64
	open(t, dsn).run(t, wminbox.Config{}, func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			produced, err := next(msg)
			if deliveries.Add(1) == int64(after) {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
			return produced, err
		}
	})
	time.Sleep(patience)
}
