package wakeup_test

import (
	"testing"

	"github.com/letterbox-go/letterbox/wakeup"
	"github.com/letterbox-go/letterbox/wakeup/internal/relay"
	"github.com/letterbox-go/letterbox/wakeup/internal/waketest"
)

func open(t testing.TB, dsn string, config relay.Config) waketest.Waker {
	t.Helper()
	w, err := wakeup.Open(dsn, wakeup.Config{
		Interval:  config.Interval,
		Idle:      config.Idle,
		KeepAlive: config.KeepAlive,
		Backoff:   config.Backoff,
		Logger:    config.Logger,
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestWaker(t *testing.T) {
	waketest.Run(t, open)
}
