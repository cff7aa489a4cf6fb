package dedupe_test

import (
	"context"
	"testing"

	"github.com/letterbox-go/letterbox/dedupe"
	"github.com/letterbox-go/letterbox/mediator"
)

type sendMail struct{ OrderID string }

type mailed struct{ To string }

type ping struct{}

func mailKey(message any) (scope, key string, ok bool) {
	mail, ok := message.(sendMail)
	return "mails", mail.OrderID, ok
}

func TestMiddleware(t *testing.T) {
	t.Parallel()
	var fail error
	mails, pings := 0, 0
	guard := newGuard(t, dedupe.Config{Store: newScripted()})
	requests := mediator.NewRequestMap()
	mediator.BindRequest(requests, func(_ context.Context, m sendMail) (mailed, error) {
		mails++
		return mailed{m.OrderID}, fail
	})
	mediator.BindCommand(requests, func(context.Context, ping) error { pings++; return nil })
	m := mediator.NewRequestMediator(requests, dedupe.Middleware(guard, mailKey))

	for i, want := range []mailed{{"1"}, {}, {}} {
		response, err := mediator.Send[mailed](t.Context(), m, sendMail{"1"})
		if response != want || err != nil {
			t.Errorf("call %d: got %v, %v; want %v", i, response, err, want)
		}
	}
	if mails != 1 {
		t.Errorf("the same key three times: %d runs", mails)
	}

	fail = errFailed
	_, err := mediator.Send[mailed](t.Context(), m, sendMail{"2"})
	want(t, false, errFailed)(false, err)
	fail = nil
	if response, err := mediator.Send[mailed](t.Context(), m, sendMail{"2"}); response != (mailed{"2"}) || err != nil {
		t.Errorf("after a failure: got %v, %v", response, err)
	}

	for range 2 {
		if _, err := m.Send(t.Context(), ping{}); err != nil {
			t.Error(err)
		}
	}
	if pings != 2 {
		t.Errorf("%d runs of a message without a key, want 2", pings)
	}
	wantStats(t, guard, dedupe.Stats{Runs: 3, Duplicates: 2, CacheHits: 2, CacheSize: 2})

	_, err = m.Send(t.Context(), sendMail{"a\x00b"})
	if _, ok := err.(*dedupe.KeyError); !ok {
		t.Errorf("a bad key: got %v", err)
	}
}
