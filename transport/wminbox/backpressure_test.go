package wminbox_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/mediator"
	"github.com/letterbox-go/letterbox/transport/backpressure"
	"github.com/letterbox-go/letterbox/transport/wminbox"
)

func TestTheHandlerWaitsWhileTheInboxIsSaturated(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b box) {
		gate, err := backpressure.New(b.repo, backpressure.Config{MaxUnfinished: 3, Refresh: 10 * time.Millisecond, RetryAfter: 10 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		f := route(t, handlerFor(t, b.repo, wminbox.Config{Reject: b.park, Gate: gate}))
		requests := mediator.NewRequestMap()
		mediator.BindCommand(requests, func(context.Context, order) error { return nil })
		processor, err := inbox.NewProcessor(b.repo, inbox.ProcessorConfig{Requests: mediator.NewRequestMediator(requests)})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			if fate := f.deliver(newMessage(fmt.Sprint(i), `{}`, "name", "order")); fate != acked {
				t.Fatalf("message %d is %s", i, fate)
			}
		}
		time.Sleep(50 * time.Millisecond) // the gate asks again
		waits := make(chan settled, 1)
		go func() { waits <- f.deliver(newMessage("3", `{}`, "name", "order")) }()
		select {
		case fate := <-waits:
			t.Fatalf("the message behind the mark is %s at once", fate)
		case <-time.After(300 * time.Millisecond):
		}
		if n := b.count(t, "inbox_messages"); n != 3 {
			t.Fatalf("%d messages are stored", n)
		}
		if _, err := processor.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if fate := <-waits; fate != acked {
			t.Errorf("after the processor caught up, the message is %s", fate)
		}
		if n := b.count(t, "inbox_messages"); n != 4 {
			t.Errorf("%d messages are stored", n)
		}
	})
}
