package wmdedupe_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/letterbox-go/letterbox/dedupe"
	"github.com/letterbox-go/letterbox/dedupe/wmdedupe"
)

// byUUID takes the message's UUID for the key.
func byUUID(m *message.Message) (scope, key string, ok bool) {
	return "mail", m.UUID, m.Metadata.Get("unguarded") == ""
}

func newGuard(t testing.TB) *dedupe.Guard {
	t.Helper()
	guard, err := dedupe.New(dedupe.Config{Store: dedupe.NewMemory(dedupe.MemoryConfig{})})
	if err != nil {
		t.Fatal(err)
	}
	return guard
}

// run starts a router that ends with the test.
func run(t *testing.T, router *message.Router) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.Background()) }()
	t.Cleanup(func() {
		if err := errors.Join(router.Close(), <-ended); err != nil {
			t.Error(err)
		}
	})
	select {
	case <-router.Running():
	case <-time.After(30 * time.Second):
		t.Fatal("the router does not run")
	}
}

func newRouter(t *testing.T) *message.Router {
	t.Helper()
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	return router
}

func TestThroughARouter(t *testing.T) {
	t.Parallel()
	// Publish returns when the message has been acked.
	pubsub := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
	guard, router := newGuard(t), newRouter(t)
	var mu sync.Mutex
	calls, failures := map[string]int{}, map[string]int{"fails twice": 2, "panics once": 1}
	router.AddConsumerHandler("mail", "orders", pubsub, func(m *message.Message) error {
		mu.Lock()
		defer mu.Unlock()
		calls[m.UUID]++
		if calls[m.UUID] > failures[m.UUID] {
			return nil
		}
		if m.UUID == "panics once" {
			panic("as told")
		}
		return errors.New("as told")
	}).AddMiddleware(wmdedupe.Middleware(guard, byUUID))
	run(t, router)

	publish := func(uuid string) {
		t.Helper()
		if err := pubsub.Publish("orders", message.NewMessage(uuid, nil)); err != nil {
			t.Fatal(err)
		}
	}
	for _, uuid := range []string{"a", "a", "a", "b", "fails twice", "fails twice", "panics once", "panics once"} {
		publish(uuid)
	}
	mu.Lock()
	defer mu.Unlock()
	want := map[string]int{"a": 1, "b": 1, "fails twice": 3, "panics once": 2}
	if fmt.Sprint(calls) != fmt.Sprint(want) {
		t.Errorf("calls %v, want %v", calls, want)
	}
	if stats := guard.Stats(); stats.Runs != 7 || stats.Duplicates != 4 {
		t.Errorf("stats %+v", stats)
	}
}

func TestMiddleware(t *testing.T) {
	t.Parallel()
	t.Run("a message without a key passes each time", func(t *testing.T) {
		t.Parallel()
		calls := 0
		handler := wmdedupe.Middleware(newGuard(t), byUUID)(func(*message.Message) ([]*message.Message, error) { calls++; return nil, nil })
		for range 2 {
			m := message.NewMessage("a", nil)
			m.Metadata.Set("unguarded", "yes")
			if _, err := handler(m); err != nil {
				t.Error(err)
			}
		}
		if calls != 2 {
			t.Errorf("%d calls, want 2", calls)
		}
	})
	t.Run("a bad key is a permanent error", func(t *testing.T) {
		t.Parallel()
		handler := wmdedupe.Middleware(newGuard(t), byUUID)(func(*message.Message) ([]*message.Message, error) {
			t.Error("the handler ran")
			return nil, nil
		})
		_, err := handler(message.NewMessage("", nil))
		var bad *dedupe.KeyError
		if !errors.As(err, &bad) || !wmdedupe.IsPermanent(err) || wmdedupe.IsPermanent(context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("the handler sees a context of the run and the message keeps its own", func(t *testing.T) {
		t.Parallel()
		guard := newGuard(t)
		outer, cancel := context.WithTimeout(t.Context(), 30*time.Second) // it would wait for itself
		defer cancel()
		m := message.NewMessageWithContext(outer, "a", nil)
		_, err := wmdedupe.Middleware(guard, byUUID)(func(m *message.Message) ([]*message.Message, error) {
			_, err := guard.Do(m.Context(), "mail", "a", func(context.Context) error { return nil })
			return nil, err
		})(m)
		if !errors.Is(err, dedupe.ErrNested) {
			t.Errorf("got %v", err)
		}
		if m.Context() != outer {
			t.Error("the message came back with another context")
		}
	})
}

func TestAHandlerThatPublishesIsRefusedBeforeItRuns(t *testing.T) {
	t.Parallel()
	pubsub := gochannel.NewGoChannel(gochannel.Config{PreserveContext: true}, watermill.NopLogger{})
	guard, router := newGuard(t), newRouter(t)
	refused, chained := make(chan error, 10), make(chan error, 10)
	report := func(to chan<- error) message.HandlerMiddleware {
		return func(handler message.HandlerFunc) message.HandlerFunc {
			return func(m *message.Message) ([]*message.Message, error) {
				_, err := handler(m)
				to <- err
				return nil, nil // ack
			}
		}
	}
	publishing := router.AddHandler("publishes", "in", pubsub, "out", pubsub, func(*message.Message) ([]*message.Message, error) {
		t.Error("the handler ran")
		return nil, nil
	})
	publishing.AddMiddleware(report(refused), wmdedupe.Middleware(guard, byUUID))
	// Behind one that publishes, whose context travels along.
	router.AddHandler("forwards", "first", pubsub, "second", pubsub, message.PassthroughHandler)
	second := router.AddConsumerHandler("consumes", "second", pubsub, func(*message.Message) error { return nil })
	second.AddMiddleware(report(chained), wmdedupe.Middleware(guard, byUUID))
	run(t, router)

	for topic, result := range map[string]chan error{"in": refused, "first": chained} {
		if err := pubsub.Publish(topic, message.NewMessage(topic, nil)); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-result:
			if (topic == "in") != errors.Is(err, wmdedupe.ErrPublishes) || topic == "first" && err != nil {
				t.Errorf("%s: got %v", topic, err)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("%s: no result", topic)
		}
	}
	if !wmdedupe.IsPermanent(wmdedupe.ErrPublishes) {
		t.Error("ErrPublishes is not permanent")
	}
}

func ExampleMiddleware() {
	guard, err := dedupe.New(dedupe.Config{Store: dedupe.NewMemory(dedupe.MemoryConfig{})})
	if err != nil {
		fmt.Println(err)
		return
	}
	handler := wmdedupe.Middleware(guard, func(m *message.Message) (scope, key string, ok bool) {
		return "mail", m.UUID, true
	})(func(m *message.Message) ([]*message.Message, error) {
		fmt.Println("mail for", m.UUID)
		return nil, nil
	})
	for range 2 { // as a router with AddMiddleware does
		if _, err := handler(message.NewMessage("order-1", nil)); err != nil {
			fmt.Println(err)
		}
	}

	// Output:
	// mail for order-1
}
