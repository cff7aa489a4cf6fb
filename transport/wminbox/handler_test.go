package wminbox_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/transport/wminbox"
)

type messageType = message.Message

// remember stores entries in a slice.
func remember(got *[]stored) accepter {
	return func(_ context.Context, entry inbox.Entry) (inbox.OutcomeKind, error) {
		raw := entry.Message.(inbox.Raw)
		*got = append(*got, stored{entry.Source, entry.MessageID, raw.Name, raw.Payload, fmt.Sprint(entry.Metadata)})
		return inbox.Stored, nil
	}
}

func TestAMessageIsStoredAsItCameAndThenAcked(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b box) {
		seen := &record{}
		f := route(t, handlerFor(t, b.repo, wminbox.Config{
			Source: "shop", Reject: b.park, Decode: orderNames(), Metadata: []string{"tenant", "absent"}, Observer: seen,
		}))
		const payload = `{ "number":"\u0000 1e400", "number":"2",  "new":9007199254740993 }`
		const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		metadata := []string{"name", "order", "Tenant", "t1", "secret", "s", "Traceparent", parent, "tracestate", "a=1"}
		for range 3 {
			if got := f.deliver(newMessage("m-1", payload, metadata...)); got != acked {
				t.Fatalf("the message was %s", got)
			}
		}
		if got := f.deliver(newMessage("m-1", `{"number":"3"}`, metadata...)); got != acked {
			t.Fatalf("the message with another body was %s", got)
		}
		want := []stored{{"shop", "m-1", "order", []byte(payload), `{"tenant":"t1","traceparent":"` + parent + `","tracestate":"a=1"}`}}
		if diff := cmp.Diff(want, b.stored(t)); diff != "" {
			t.Errorf("want -, got +:\n%s", diff)
		}
		kinds := []inbox.OutcomeKind{inbox.Stored, inbox.Duplicate, inbox.Duplicate, inbox.Mismatch}
		if diff := cmp.Diff(kinds, seen.outcomes); diff != "" {
			t.Errorf("want -, got +:\n%s", diff)
		}
	})
}

func TestNothingIsAckedBeforeAcceptReturns(t *testing.T) {
	t.Parallel()
	var msg *message.Message
	held := make(chan struct{})
	f := route(t, handlerFor(t, accepter(func(context.Context, inbox.Entry) (inbox.OutcomeKind, error) {
		defer close(held)
		select {
		case <-msg.Acked():
			t.Error("acked while the commit is under way")
		case <-time.After(50 * time.Millisecond):
		}
		return inbox.Stored, nil
	}), wminbox.Config{Reject: wminbox.Nack{}}))
	msg = newMessage("m", "{}", "name", "order")
	if got := f.deliver(msg); got != acked {
		t.Errorf("the message was %s", got)
	}
	<-held
}

func TestAWrongConfigNamesEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := wminbox.NewHandler(storeNothing, wminbox.Config{
		IDs: []wminbox.IDExtractor{}, Names: []wminbox.NameExtractor{nil}, Timeout: -1,
	})
	for _, part := range []string{"IDs: empty", "Names: 0 is nil", "Timeout", "Reject or DB is required"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q is missing in: %v", part, err)
		}
	}
	if _, err := wminbox.NewHandler(nil, wminbox.Config{Reject: wminbox.Nack{}}); err == nil {
		t.Error("a nil repository was taken")
	}
}

func TestTheDatabaseAloneIsEnoughForTheDefaultPolicy(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b box) {
		f := route(t, handlerFor(t, b.repo, wminbox.Config{DB: b.db}))
		if got := f.deliver(newMessage("", "{}", "name", "order")); got != acked {
			t.Errorf("the message was %s", got)
		}
		if got := len(b.parked(t)); got != 1 {
			t.Errorf("%d messages are parked", got)
		}
	})
}

func TestEveryDeliveryEndsAckedOrNacked(t *testing.T) {
	t.Parallel()
	failing := func(err error) accepter {
		return func(context.Context, inbox.Entry) (inbox.OutcomeKind, error) { return 0, err }
	}
	hang := accepter(func(ctx context.Context, _ inbox.Entry) (inbox.OutcomeKind, error) {
		<-ctx.Done()
		return 0, ctx.Err()
	})
	extractor := func(call func()) []wminbox.IDExtractor {
		return []wminbox.IDExtractor{func(*message.Message) (wminbox.ID, bool) { call(); return wminbox.ID{}, false }}
	}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for _, c := range []struct {
		name     string
		accepter wminbox.Accepter
		config   wminbox.Config
		ctx      context.Context
		want     settled
	}{
		{"the database is away", failing(errors.New("connection refused")), wminbox.Config{}, nil, nacked},
		{"the database wants another try", failing(&inbox.RetryableError{Code: "40001", Err: errors.New("x")}), wminbox.Config{}, nil, nacked},
		{"the database does not answer", hang, wminbox.Config{Timeout: 20 * time.Millisecond}, nil, nacked},
		{"the context has ended", hang, wminbox.Config{PauseBase: time.Hour, PauseMax: time.Hour}, cancelled, nacked},
		{"the repository panics", accepter(func(context.Context, inbox.Entry) (inbox.OutcomeKind, error) { panic("x") }), wminbox.Config{}, nil, nacked},
		{"the repository ends the goroutine", accepter(func(context.Context, inbox.Entry) (inbox.OutcomeKind, error) {
			runtime.Goexit()
			return 0, nil
		}), wminbox.Config{}, nil, nacked},
		{"an extractor ends the goroutine", storeNothing, wminbox.Config{IDs: extractor(runtime.Goexit)}, nil, nacked},
		{"an extractor panics, and the policy takes the message", storeNothing, wminbox.Config{IDs: extractor(func() { panic("x") }), Reject: take{}}, nil, acked},
		{"the policy fails", storeNothing, wminbox.Config{IDs: extractor(func() {}), Reject: take{errors.New("full")}}, nil, nacked},
		{"the policy is to nack", storeNothing, wminbox.Config{IDs: extractor(func() {}), Reject: wminbox.Nack{}}, nil, nacked},
		{"the entry can never be stored, and the policy takes it", failing(&inbox.EntryError{Field: "message id", Err: errors.New("too long")}), wminbox.Config{Reject: take{}}, nil, acked},
		{"the database cannot hold the text", failing(fmt.Errorf("add: %w", sqlState("22P05"))), wminbox.Config{Reject: take{}}, nil, acked},
		{"a constraint failed", failing(fmt.Errorf("add: %w", sqlState("23514"))), wminbox.Config{Reject: take{}}, nil, nacked},
		{"the observer panics after the commit", storeNothing, wminbox.Config{Observer: panicky{}}, nil, acked},
		{"the gate panics", storeNothing, wminbox.Config{Gate: gate(func() (bool, error) { panic("x") })}, nil, nacked},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.config.Reject == nil {
				c.config.Reject = take{}
			}
			if c.config.PauseBase == 0 {
				c.config.PauseBase, c.config.PauseMax = time.Millisecond, time.Millisecond
			}
			f := route(t, handlerFor(t, c.accepter, c.config))
			msg := newMessage("m", "{}", "name", "order")
			if c.ctx != nil {
				msg.SetContext(c.ctx)
			}
			if got := f.deliver(msg); got != c.want {
				t.Errorf("the message was %s, want %s", got, c.want)
			}
		})
	}
}

func TestAMessageThatIsCommittedIsAckedEvenIfItsContextEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	f := route(t, handlerFor(t, accepter(func(context.Context, inbox.Entry) (inbox.OutcomeKind, error) {
		cancel()
		return inbox.Stored, nil
	}), wminbox.Config{Reject: wminbox.Nack{}}))
	msg := newMessage("m", "{}", "name", "order")
	msg.SetContext(ctx)
	if got := f.deliver(msg); got != acked {
		t.Errorf("the message was %s", got)
	}
}

func TestNacksArePacedAndThePauseGrows(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]wminbox.Config{
		"when the database is away":  {Reject: wminbox.Nack{}},
		"when a reject is nacked":    {Reject: wminbox.Nack{}, IDs: []wminbox.IDExtractor{wminbox.Metadata("absent")}},
		"when the policy is failing": {Reject: take{errors.New("full")}, IDs: []wminbox.IDExtractor{wminbox.Metadata("absent")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var away atomic.Bool
			away.Store(true)
			f := route(t, handlerFor(t, accepter(func(context.Context, inbox.Entry) (inbox.OutcomeKind, error) {
				return 0, errors.New("connection refused")
			}), config))
			start, nacks := time.Now(), 0
			for time.Since(start) < 2*time.Second {
				if got := f.deliver(newMessage("m", "{}", "name", "order")); got != nacked {
					t.Fatalf("the message was %s", got)
				}
				nacks++
			}
			// 100, 200, 400, 800, 1600 ms.
			if nacks > 6 || nacks < 3 {
				t.Errorf("%d nacks in 2 s", nacks)
			}
		})
	}
}

func TestManyMessagesThatMeetOneOutageShareItsPauses(t *testing.T) {
	t.Parallel()
	seen := &record{}
	var away atomic.Bool
	away.Store(true)
	f := route(t, handlerFor(t, accepter(func(context.Context, inbox.Entry) (inbox.OutcomeKind, error) {
		if away.Load() {
			return 0, errors.New("connection refused")
		}
		return inbox.Stored, nil
	}), wminbox.Config{Reject: wminbox.Nack{}, Observer: seen}))
	time.AfterFunc(time.Second, func() { away.Store(false) })
	done := make(chan int)
	for i := range 50 {
		go func() { done <- f.untilAcked(newMessage(fmt.Sprint(i), "{}", "name", "order")) }()
	}
	start := time.Now()
	for range 50 {
		// 100, 200, 400, 800 ms, and a quarter each for jitter.
		if nacks := <-done; nacks < 2 || nacks > 6 {
			t.Errorf("a message was nacked %d times", nacks)
		}
	}
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("the pauses outlasted the outage: %s", took)
	}
}

func TestTheHandlerWaitsAtTheGateInsteadOfNacking(t *testing.T) {
	t.Parallel()
	seen := &record{}
	var asked atomic.Int32
	f := route(t, handlerFor(t, storeNothing, wminbox.Config{
		Reject: wminbox.Nack{}, Observer: seen,
		Gate: gate(func() (bool, error) { return asked.Add(1) < 4, nil }),
	}))
	if got := f.deliver(newMessage("m", "{}", "name", "order")); got != acked {
		t.Errorf("the message was %s", got)
	}
	if seen.nacked() > 0 || asked.Load() != 4 {
		t.Errorf("%d nacks, asked %d times", seen.nacked(), asked.Load())
	}
}

func TestAGateThatStaysShutEndsInANack(t *testing.T) {
	t.Parallel()
	f := route(t, handlerFor(t, storeNothing, wminbox.Config{
		Reject: wminbox.Nack{}, GateWait: 50 * time.Millisecond,
		Gate: gate(func() (bool, error) { return true, nil }),
	}))
	if got := f.deliver(newMessage("m", "{}", "name", "order")); got != nacked {
		t.Errorf("the message was %s", got)
	}
}

func TestAGateThatDoesNotKnowLetsPass(t *testing.T) {
	t.Parallel()
	f := route(t, handlerFor(t, storeNothing, wminbox.Config{
		Reject: wminbox.Nack{}, Gate: gate(func() (bool, error) { return true, errors.New("down") }),
	}))
	if got := f.deliver(newMessage("m", "{}", "name", "order")); got != acked {
		t.Errorf("the message was %s", got)
	}
}

func TestABrokenTraceContextIsDroppedNotTheMessage(t *testing.T) {
	t.Parallel()
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for parent, kept := range map[string]bool{
		good: true,
		"cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-later": true,
		good + "-x":           false,
		"ff" + good[2:]:       false,
		strings.ToUpper(good): false,
		"00-00000000000000000000000000000000-b7ad6b7169203331-01":      false,
		"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01":      false,
		"cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-\xff": false,
		"x": false,
		"":  false,
	} {
		var got []stored
		handle := handlerFor(t, remember(&got), wminbox.Config{Reject: wminbox.Nack{}})
		if err := handle(newMessage("m", "{}", "name", "order", "traceparent", parent, "tracestate", "a=1")); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprint(map[string]string(nil))
		if kept {
			want = fmt.Sprint(map[string]string{"traceparent": parent, "tracestate": "a=1"})
		}
		if got[0].Metadata != want {
			t.Errorf("%q: %s", parent, got[0].Metadata)
		}
	}
}

// take is a policy that takes every message, or fails.
type take struct{ err error }

func (p take) Reject(context.Context, *message.Message, *wminbox.RejectError) error { return p.err }

type sqlState string

func (s sqlState) Error() string    { return "SQLSTATE " + string(s) }
func (s sqlState) SQLState() string { return string(s) }

type gate func() (bool, error)

func (g gate) Saturated(context.Context) (bool, time.Duration, error) {
	saturated, err := g()
	return saturated, 10 * time.Millisecond, err
}

type panicky struct{}

func (panicky) Accepted(context.Context, inbox.Outcome)        { panic("x") }
func (panicky) Rejected(context.Context, *wminbox.RejectError) { panic("x") }
func (panicky) Nacked(context.Context, error)                  { panic("x") }
