package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/uptrace/bun"
	"go.opentelemetry.io/otel/attribute"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/telemetry"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, db *bun.DB) {
		a := newApp(t, db, nil, inbox.ProcessorConfig{BatchSize: 1, Backoff: inbox.Backoff{Base: time.Hour}})
		a.script["fails"] = failing
		a.script["dies"] = func(context.Context) error { return inbox.Permanent(errGone) }
		a.accept(t, "shop", oneJob, "a", "fails", "dies")
		a.accept(t, "elsewhere", oneJob, "a")
		a.accept(t, "shop", oneJob, "a")
		if _, err := a.repo.Accept(t.Context(), []inbox.Entry{{MessageID: "a", Source: "shop", Message: job{"other body"}}}); err != nil {
			t.Fatal(err)
		}
		a.drain(t)
		metrics := a.collect(t)
		shop, name := attribute.String("inbox.source", "shop"), attribute.String("inbox.name", "job")
		for _, want := range []struct {
			name, unit string
			value      int64
			with       []attribute.KeyValue
		}{
			{"inbox.accepted", "{message}", 3, []attribute.KeyValue{shop, name}},
			{"inbox.accepted", "{message}", 1, []attribute.KeyValue{attribute.String("inbox.source", "other"), name}},
			{"inbox.duplicates", "{message}", 1, []attribute.KeyValue{shop, name}},
			{"inbox.mismatches", "{message}", 1, []attribute.KeyValue{shop, name}},
			{"inbox.retries", "{message}", 1, []attribute.KeyValue{shop, name}},
			{"inbox.dead", "{message}", 1, []attribute.KeyValue{shop, name}},
			{"messaging.client.consumed.messages", "{message}", 4, []attribute.KeyValue{name, attribute.String("messaging.operation.name", "process")}},
			{"messaging.process.duration", "s", 1, []attribute.KeyValue{
				attribute.String("messaging.destination.name", "shop"), attribute.String("error.type", "*telemetry_test.refusal"), attribute.String("inbox.outcome", "failed"),
			}},
			{"messaging.process.duration", "s", 1, []attribute.KeyValue{attribute.String("messaging.destination.name", "job")}},
		} {
			m := metrics[want.name]
			if got := value(m, want.with...); got != want.value || m.Unit != want.unit || m.Description == "" {
				t.Errorf("%s%v is %d %s, want %d %s", want.name, want.with, got, m.Unit, want.value, want.unit)
			}
		}
		if n := value(metrics["inbox.claim.duration"]); n == 0 || metrics["inbox.claim.duration"].Unit != "s" {
			t.Error("no claim was measured")
		}
	})
}

func TestRandomNamesMakeNoSeries(t *testing.T) {
	t.Parallel()
	r := newRecorder()
	names := inbox.NewNameMap()
	inbox.Register[job](names, "job")
	observer, err := telemetry.New(r.config(names, "shop"))
	if err != nil {
		t.Fatal(err)
	}
	kinds := []inbox.ObservationKind{
		inbox.SawStored, inbox.SawDuplicate, inbox.SawMismatch, inbox.SawProcessed, inbox.SawFailed,
		inbox.SawDead, inbox.SawPostponed, inbox.SawInterrupted, inbox.SawSwept,
	}
	see := func(i int, name, source string) {
		info := inbox.Info{ID: int64(i), Identity: inbox.Identity{Source: source, MessageID: fmt.Sprint("id-", i), Name: name}, Attempt: i}
		o := inbox.Observation{Kind: kinds[i%len(kinds)], Message: info, Began: time.Now(), Count: 1, Action: name}
		if o.Kind != inbox.SawProcessed {
			o.Err = errors.New(fmt.Sprint("error ", i))
		}
		observer.Observe(observer.Start(t.Context(), []inbox.Info{info}), o)
		r.spans.Reset()
	}
	for i := range kinds {
		see(i, "job", "shop")
		see(i, "no such name", "no such source")
	}
	before := r.count(t)
	for i := range 100_000 {
		see(i, fmt.Sprint("name-", i), fmt.Sprint("source-", i))
	}
	if diff := cmp.Diff(before, r.count(t)); diff != "" {
		t.Error(diff)
	}
}

// worded is an error that makes its type up.
type worded struct{ word string }

func (w worded) Error() string     { return "text" }
func (w worded) ErrorType() string { return w.word }

func TestErrorTypesAreBounded(t *testing.T) {
	t.Parallel()
	r := newRecorder()
	observer, err := telemetry.New(r.config(inbox.NewNameMap()))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10_000 {
		observer.Observe(t.Context(), inbox.Observation{Kind: inbox.SawFailed, Err: worded{fmt.Sprint("word-", i)}, Began: time.Now()})
	}
	if n := r.count(t)["messaging.process.duration"]; n > 110 {
		t.Errorf("%d series", n)
	}
}

// count is how many series each metric has.
func (r *recorder) count(t *testing.T) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for name, m := range r.collect(t) {
		counts[name] = len(series(m))
	}
	return counts
}

func TestIDsAreInNoMetric(t *testing.T) {
	t.Parallel()
	r := newRecorder()
	observer, err := telemetry.New(r.config(inbox.NewNameMap()))
	if err != nil {
		t.Fatal(err)
	}
	for kind := inbox.SawStored; kind <= inbox.SawAction; kind++ {
		observer.Observe(t.Context(), inbox.Observation{
			Kind: kind, Message: inbox.Info{ID: 4711, Identity: inbox.Identity{MessageID: "the-id", Name: "n"}, OrderingKey: "the-key", Metadata: map[string]string{"k": "the-value"}, Attempt: 4711},
			Err: errors.New("the-error"), Count: 1, Actor: "the-actor",
		})
	}
	allowed := map[attribute.Key]bool{
		"messaging.system": true, "messaging.operation.name": true, "messaging.operation.type": true, "messaging.destination.name": true,
		"error.type": true, "inbox.name": true, "inbox.source": true, "inbox.outcome": true, "inbox.swept.what": true,
	}
	for name, m := range r.collect(t) {
		for set := range series(m) {
			for _, kv := range set.ToSlice() {
				if !allowed[kv.Key] {
					t.Errorf("%s has %s", name, kv.Key)
				}
			}
		}
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, db *bun.DB) {
		a := newApp(t, db, nil, inbox.ProcessorConfig{})
		hook := &queries{}
		repo, err := inbox.NewRepository(db.WithQueryHook(hook), a.names, inbox.Config{})
		if err != nil {
			t.Fatal(err)
		}
		config := a.config(nil)
		config.Interval = time.Hour
		stop, err := telemetry.Watch(repo, config)
		if err != nil {
			t.Fatal(err)
		}
		a.script["dies"] = func(context.Context) error { return inbox.Permanent(errGone) }
		a.accept(t, "shop", oneJob, "dies")
		a.drain(t)
		a.accept(t, "shop", oneJob, "a", "b")
		for range 100 {
			metrics := a.collect(t)
			if n := value(metrics["inbox.unfinished"], attribute.String("inbox.name", "job"), attribute.String("inbox.status", "pending")); n != 2 {
				t.Fatalf("%d pending", n)
			}
			if n := value(metrics["inbox.unfinished"], attribute.String("inbox.status", "dead")); n != 1 {
				t.Fatalf("%d dead", n)
			}
			if age := value(metrics["inbox.oldest.age"]); age <= 0 || age > int64(time.Minute) {
				t.Fatalf("the age is %v", time.Duration(age))
			}
		}
		if n := hook.n.Load(); n == 0 || n > 30 {
			t.Errorf("%d queries for 100 collections", n)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if _, there := a.collect(t)["inbox.oldest.age"]; there {
			t.Error("watched after the stop")
		}
	})
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]telemetry.Config{
		"no names":         {},
		"an empty source":  {Names: inbox.NewNameMap(), Sources: []string{""}},
		"a negative pause": {Names: inbox.NewNameMap(), Interval: -1},
		"a negative limit": {Names: inbox.NewNameMap(), Timeout: -1},
	} {
		if _, err := telemetry.New(config); err == nil {
			t.Errorf("%s is fine", name)
		}
	}
	if _, err := telemetry.New(telemetry.Config{Names: inbox.NewNameMap()}); err != nil {
		t.Errorf("the global providers: %v", err)
	}
	if _, err := telemetry.Watch(nil, telemetry.Config{}); err == nil {
		t.Error("no repository is fine")
	}
}
