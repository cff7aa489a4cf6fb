package wminbox_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/transport/wminbox"
)

// A router with Once in front of a handler that fails on its first call.
func TestOnceHandlesEachMessageOnceThroughARouter(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b box) {
		if _, err := b.db.Exec(`CREATE TABLE effects (id TEXT)`); err != nil {
			t.Fatal(err)
		}
		once, err := wminbox.Once(b.repo, wminbox.OnceConfig{Consumer: "billing"})
		if err != nil {
			t.Fatal(err)
		}
		logger := watermill.NopLogger{}
		pubsub := gochannel.NewGoChannel(gochannel.Config{}, logger)
		router, err := message.NewRouter(message.RouterConfig{CloseTimeout: patience}, logger)
		if err != nil {
			t.Fatal(err)
		}
		poison, err := middleware.PoisonQueueWithFilter(pubsub, "poison", wminbox.IsPermanent)
		if err != nil {
			t.Fatal(err)
		}
		router.AddMiddleware(poison, once)
		var calls atomic.Int32
		router.AddConsumerHandler("billing", "orders", pubsub, func(msg *message.Message) error {
			if _, err := inbox.DB(msg.Context(), b.db).ExecContext(msg.Context(), `INSERT INTO effects VALUES (?)`, msg.UUID); err != nil {
				return err
			}
			if calls.Add(1) == 1 {
				return errors.New("not yet")
			}
			return nil
		})
		poisoned, err := pubsub.Subscribe(t.Context(), "poison")
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = router.Run(t.Context()) }()
		<-router.Running()
		for _, id := range []string{"a", "a", "b", "a", ""} {
			if err := pubsub.Publish("orders", message.NewMessage(id, []byte("{}"))); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case msg := <-poisoned:
			msg.Ack()
		case <-time.After(patience):
			t.Fatal("the message without an id was not poisoned")
		}
		for deadline := time.Now().Add(patience); calls.Load() < 3 && time.Now().Before(deadline); {
			time.Sleep(5 * time.Millisecond)
		}
		if err := router.Close(); err != nil {
			t.Fatal(err)
		}
		var effects []string
		if err := b.db.NewRaw(`SELECT id FROM effects ORDER BY id`).Scan(t.Context(), &effects); err != nil {
			t.Fatal(err)
		}
		if len(effects) != 2 || effects[0] != "a" || effects[1] != "b" || calls.Load() != 3 {
			t.Errorf("effects %v after %d calls, want a and b after 3", effects, calls.Load())
		}
	})
}

func TestOnceRefusesAHandlerThatPublishes(t *testing.T) {
	t.Parallel()
	b := openBox(t, testdb.SQLite(t))
	once, err := wminbox.Once(b.repo, wminbox.OnceConfig{Consumer: "billing"})
	if err != nil {
		t.Fatal(err)
	}
	logger := watermill.NopLogger{}
	pubsub := gochannel.NewGoChannel(gochannel.Config{}, logger)
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		t.Fatal(err)
	}
	refused := make(chan error, 1)
	router.AddMiddleware(func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			_, err := next(msg)
			refused <- err
			return nil, nil // ack
		}
	}, once)
	router.AddHandler("billing", "orders", pubsub, "bills", pubsub, func(*message.Message) ([]*message.Message, error) {
		t.Error("the handler ran")
		return nil, nil
	})
	go func() { _ = router.Run(t.Context()) }()
	<-router.Running()
	if err := pubsub.Publish("orders", message.NewMessage("a", nil)); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-refused:
		if !errors.Is(err, wminbox.ErrPublishes) {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("nothing came back")
	}
	if _, err := wminbox.Once(b.repo, wminbox.OnceConfig{}); err == nil {
		t.Error("no consumer: no error")
	}
}
