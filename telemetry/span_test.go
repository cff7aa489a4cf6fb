package telemetry_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/uptrace/bun"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/telemetry"
)

func TestASpanLinksToWhatWasStored(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, db *bun.DB) {
		a := newApp(t, db, nil, inbox.ProcessorConfig{})
		var inner trace.SpanContext
		a.script["a"] = func(ctx context.Context) error {
			inner = trace.SpanContextFromContext(ctx)
			return nil
		}
		sent := a.accept(t, "shop", oneJob, "a")
		a.drain(t)
		spans := a.spans.GetSpans()
		if len(spans) != 1 {
			t.Fatalf("%d spans", len(spans))
		}
		s := spans[0]
		if s.Name != "process shop" || s.SpanKind != trace.SpanKindConsumer || s.Status.Code != codes.Unset {
			t.Errorf("%q, %v, %v", s.Name, s.SpanKind, s.Status)
		}
		if s.Parent.IsValid() || s.SpanContext.TraceID() == sent["a"].TraceID() {
			t.Error("the span is not a trace of its own")
		}
		if len(s.Links) != 1 || s.Links[0].SpanContext.SpanID() != sent["a"].SpanID() || s.Links[0].SpanContext.TraceID() != sent["a"].TraceID() {
			t.Errorf("links %v, sent %v", s.Links, sent)
		}
		if inner.SpanID() != s.SpanContext.SpanID() {
			t.Error("the handler's context has another span")
		}
		if d := s.EndTime.Sub(s.StartTime); d <= 0 || d > time.Minute {
			t.Errorf("took %v", d)
		}
		got := attributes(s.Attributes)
		delete(got, "inbox.id")
		want := map[string]any{
			"messaging.system": "letterbox", "messaging.operation.name": "process", "messaging.operation.type": "process",
			"messaging.destination.name": "shop", "messaging.message.id": "a",
			"inbox.name": "job", "inbox.source": "shop", "inbox.attempt": int64(1), "inbox.outcome": "processed", "inbox.inline": false,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if s.InstrumentationScope.SchemaURL == "" {
			t.Error("no schema")
		}
	})
}

func TestAParentOnlyByOption(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, db *bun.DB) {
		a := newApp(t, db, func(c *telemetry.Config) {
			c.ParentFromMessage = true
			c.Propagator = propagation.TraceContext{}
		}, inbox.ProcessorConfig{})
		sent := a.accept(t, "shop", oneJob, "a")
		ctx, ambient := a.tracers.Tracer("test").Start(t.Context(), "cron")
		if _, err := a.proc.Drain(ctx); err != nil {
			t.Fatal(err)
		}
		spans := a.spans.GetSpans() // the ambient one has not ended
		if len(spans) != 1 || spans[0].Parent.SpanID() != sent["a"].SpanID() || spans[0].SpanContext.TraceID() != sent["a"].TraceID() {
			t.Fatalf("%+v", spans)
		}
		links := spans[0].Links
		if len(links) != 2 || links[0].SpanContext.SpanID() != sent["a"].SpanID() || links[1].SpanContext.SpanID() != ambient.SpanContext().SpanID() {
			t.Errorf("%+v", links)
		}
	})
}

func TestFailuresInSpans(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, db *bun.DB) {
		a := newApp(t, db, nil, inbox.ProcessorConfig{BatchSize: 1, Backoff: inbox.Backoff{Base: time.Hour}})
		a.script["fails"] = failing
		a.script["dies"] = func(context.Context) error { return inbox.Permanent(errGone) }
		a.script["early"] = func(context.Context) error { return inbox.Postpone(time.Hour) }
		a.script["panics"] = func(context.Context) error { panic("oh") }
		a.accept(t, "unknown", oneJob, "fails", "dies", "early", "panics")
		a.drain(t)
		got := map[string]string{}
		for _, s := range a.spans.GetSpans() {
			is := attributes(s.Attributes)
			got[is["messaging.message.id"].(string)] = fmt.Sprint(s.Name, ", ", is["inbox.outcome"], ", ", is["error.type"], ", ", s.Status.Code, ", ", s.Status.Description)
		}
		want := map[string]string{
			"fails":  "process job, failed, *telemetry_test.refusal, Error, wrapped: secret account 4711 refused",
			"dies":   "process job, dead, _OTHER, Error, gone for good",
			"early":  "process job, postponed, <nil>, Unset, ",
			"panics": "process job, failed, *inbox.panicError, Error, panic: oh",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestRolledBackWorkIsNotExported(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, db *bun.DB) {
		a := newApp(t, db, nil, inbox.ProcessorConfig{Backoff: inbox.Backoff{Base: time.Hour}})
		runs := map[string]int{}
		note := func(id string, err error) func(context.Context) error {
			return func(ctx context.Context) error {
				runs[id]++
				if !trace.SpanFromContext(ctx).IsRecording() {
					t.Errorf("%s ran without a span", id)
				}
				return err
			}
		}
		// The last fails after it wrote: the batch is rolled back, and its
		// messages are run once more, each alone.
		a.script["a"], a.script["b"], a.script["c"] = note("a", nil), note("b", nil), note("c", &refusal{})
		a.accept(t, "shop", oneJob, "a", "b", "c")
		a.drain(t)
		if diff := cmp.Diff(map[string]int{"a": 2, "b": 2, "c": 2}, runs); diff != "" {
			t.Fatalf("the batch was not rolled back: %s", diff)
		}
		spans := map[string]int{}
		for _, s := range a.spans.GetSpans() {
			spans[attributes(s.Attributes)["messaging.message.id"].(string)]++
		}
		if diff := cmp.Diff(map[string]int{"a": 1, "b": 1, "c": 1}, spans); diff != "" {
			t.Error(diff)
		}
		metrics := a.collect(t)
		for name, want := range map[string]int64{"messaging.client.consumed.messages": 3, "messaging.process.duration": 3, "inbox.retries": 1, "inbox.accepted": 3} {
			if got := value(metrics[name]); got != want {
				t.Errorf("%s is %d, want %d", name, got, want)
			}
		}
	})
}

func TestABatchHasOneSpan(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, db *bun.DB) {
		a := newApp(t, db, nil, inbox.ProcessorConfig{})
		sent := a.accept(t, "shop", ofMany, "a", "b", "c")
		a.drain(t)
		spans := a.spans.GetSpans()
		if len(spans) != 1 || len(spans[0].Links) != 3 {
			t.Fatalf("%+v", spans)
		}
		for _, link := range spans[0].Links {
			id := attributes(link.Attributes)["messaging.message.id"].(string)
			if link.SpanContext.SpanID() != sent[id].SpanID() {
				t.Errorf("the link of %s leads to %v", id, link.SpanContext)
			}
		}
		is := attributes(spans[0].Attributes)
		if is["messaging.batch.message_count"] != int64(3) || is["messaging.message.id"] != nil {
			t.Errorf("%v", is)
		}
		metrics := a.collect(t)
		if n := value(metrics["messaging.process.duration"]); n != 1 {
			t.Errorf("%d durations", n)
		}
		if n := value(metrics["messaging.client.consumed.messages"]); n != 3 {
			t.Errorf("%d messages", n)
		}
	})
}

func TestABatchThatIsRolledBackIsNotExported(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, db *bun.DB) {
		a := newApp(t, db, nil, inbox.ProcessorConfig{Backoff: inbox.Backoff{Base: time.Hour}})
		calls := 0
		a.batch = func(ctx context.Context, messages []many) error {
			calls++
			for _, m := range messages {
				if m.ID == "c" {
					return &refusal{}
				}
			}
			return nil
		}
		a.accept(t, "shop", ofMany, "a", "b", "c")
		a.drain(t)
		got := map[string]int{}
		for _, s := range a.spans.GetSpans() {
			is := attributes(s.Attributes)
			got[fmt.Sprint(is["messaging.message.id"], " ", is["inbox.outcome"])]++
		}
		if diff := cmp.Diff(map[string]int{"a processed": 1, "b processed": 1, "c failed": 1}, got); diff != "" || calls != 4 {
			t.Error(calls, diff)
		}
	})
}

func TestAMessageThatCannotBeDecodedHasASpan(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, db *bun.DB) {
		a := newApp(t, db, nil, inbox.ProcessorConfig{})
		a.accept(t, "shop", ofMany, "a", "b")
		if _, err := a.repo.Accept(t.Context(), []inbox.Entry{{MessageID: "c", Source: "shop", Message: inbox.Raw{Name: "many", Payload: []byte("{")}}}); err != nil {
			t.Fatal(err)
		}
		a.drain(t)
		dead := 0
		for _, s := range a.spans.GetSpans() {
			if is := attributes(s.Attributes); is["inbox.outcome"] == "dead" && is["messaging.message.id"] == "c" {
				dead++
			}
		}
		if dead != 1 {
			t.Errorf("%d spans of the dead message", dead)
		}
	})
}

func TestInlineHandling(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, db *bun.DB) {
		a := newApp(t, db, func(c *telemetry.Config) { c.ReceiptNames = []string{"receipt"} }, inbox.ProcessorConfig{})
		once := func(err error) {
			_, _ = a.repo.HandleOnce(t.Context(), inbox.Receipt{Source: "shop", MessageID: "a", Name: "receipt"},
				func(context.Context, bun.IDB) error { return err })
		}
		once(errGone) // rolled back: nobody is told
		if n := len(a.spans.GetSpans()); n != 0 {
			t.Errorf("%d spans of a run that was rolled back", n)
		}
		once(nil)
		spans := a.spans.GetSpans()
		if len(spans) != 1 || attributes(spans[0].Attributes)["inbox.inline"] != true || attributes(spans[0].Attributes)["inbox.id"] != nil {
			t.Fatalf("%+v", spans)
		}
		if n := value(a.collect(t)["messaging.process.duration"]); n != 1 {
			t.Errorf("%d durations", n)
		}
	})
}

func TestASpanWithoutAnObservationIsForgotten(t *testing.T) {
	t.Parallel()
	r := newRecorder()
	observer, err := telemetry.New(r.config(inbox.NewNameMap()))
	if err != nil {
		t.Fatal(err)
	}
	type key struct{}
	gone := make(chan struct{})
	func() {
		canary := new([64]byte)
		runtime.AddCleanup(canary, func(done chan struct{}) { close(done) }, gone)
		ctx := observer.Start(context.WithValue(context.Background(), key{}, canary), []inbox.Info{{ID: 1}})
		if !trace.SpanFromContext(ctx).IsRecording() {
			t.Error("no span")
		}
	}()
	deadline := time.After(30 * time.Second)
	for {
		runtime.GC()
		select {
		case <-gone:
			if n := len(r.spans.GetSpans()); n != 0 {
				t.Errorf("%d spans", n)
			}
			return
		case <-deadline:
			t.Fatal("something holds on to a run that was rolled back")
		case <-time.After(time.Millisecond):
		}
	}
}
