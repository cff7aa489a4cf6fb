package httpinbox_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/mediator"
	"github.com/letterbox-go/letterbox/transport/backpressure"
	"github.com/letterbox-go/letterbox/transport/httpinbox"
	"github.com/letterbox-go/letterbox/transport/tracecontext"
)

const (
	traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	tracestate  = "congo=t61rcWkgMzE"
)

func decodeMap(r io.Reader) (m map[string]any, err error) {
	err = json.NewDecoder(r).Decode(&m)
	return m, err
}

func TestASaturatedInboxAnswers429UntilItIsDrained(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, db *bun.DB) {
		e := newEnv(t, db)
		mediator.BindCommand(e.requests, func(context.Context, Credit) error { return nil })
		gate, err := backpressure.New(e.repo, backpressure.Config{MaxUnfinished: 2, Refresh: time.Nanosecond, RetryAfter: 7 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		route(t, e, "/credits", httpinbox.Config[Credit]{Identify: httpinbox.IdempotencyKey(), Saturation: gate})
		e.post(t, "/credits", good, "Idempotency-Key: 1").expectOutcome(t, inbox.Stored)
		e.post(t, "/credits", good, "Idempotency-Key: 2").expectOutcome(t, inbox.Stored)
		r := e.post(t, "/credits", good, "Idempotency-Key: 3")
		r.expect(t, http.StatusTooManyRequests, "saturated")
		if got := r.Header.Get("Retry-After"); got != "7" {
			t.Errorf("Retry-After %q", got)
		}
		if n := len(e.rows(t)); n != 2 {
			t.Errorf("%d rows", n)
		}
		e.drain(t, inbox.ProcessorConfig{})
		e.post(t, "/credits", good, "Idempotency-Key: 3").expectOutcome(t, inbox.Stored)
	})
}

func TestTraceContextReachesTheHandler(t *testing.T) {
	t.Parallel()
	type seen struct {
		parent, state string
		ok            bool
	}
	for _, test := range []struct {
		name   string
		header []string
		want   seen
	}{
		{"both", []string{"Traceparent: " + traceparent, "Tracestate: " + tracestate}, seen{traceparent, tracestate, true}},
		{"a state in two fields", []string{"Traceparent: " + traceparent, "Tracestate: a=1", "Tracestate: b=2"}, seen{traceparent, "a=1,b=2", true}},
		{"no state", []string{"Traceparent: " + traceparent}, seen{traceparent, "", true}},
		{"a malformed state", []string{"Traceparent: " + traceparent, "Tracestate: A=="}, seen{traceparent, "", true}},
		{"a malformed parent drops both", []string{"Traceparent: 00-xyz", "Tracestate: " + tracestate}, seen{}},
		{"two parents drop both", []string{"Traceparent: " + traceparent, "Traceparent: " + traceparent, "Tracestate: " + tracestate}, seen{}},
		{"nothing", nil, seen{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, testdb.SQLite(t))
			var got *seen
			mediator.BindCommand(e.requests, func(ctx context.Context, _ Credit) error {
				var s seen
				s.parent, s.state, s.ok = tracecontext.FromContext(ctx)
				got = &s
				return nil
			})
			route(t, e, "/credits", httpinbox.Config[Credit]{Identify: httpinbox.IdempotencyKey()})
			e.post(t, "/credits", good, append(test.header, "Idempotency-Key: 1")...).expectOutcome(t, inbox.Stored)
			e.drain(t, inbox.ProcessorConfig{})
			if got == nil || *got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}
