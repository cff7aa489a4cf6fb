package pgdriverwake_test

import (
	"testing"

	"github.com/uptrace/bun/driver/pgdriver"

	"github.com/letterbox-go/letterbox/wakeup/internal/relay"
	"github.com/letterbox-go/letterbox/wakeup/internal/waketest"
	"github.com/letterbox-go/letterbox/wakeup/pgdriverwake"
)

func TestWaker(t *testing.T) {
	waketest.Run(t, func(_ testing.TB, dsn string, config relay.Config) waketest.Waker {
		return pgdriverwake.New(pgdriver.NewConnector(pgdriver.WithDSN(dsn)), pgdriverwake.Config{
			Interval:  config.Interval,
			Idle:      config.Idle,
			KeepAlive: config.KeepAlive,
			Backoff:   config.Backoff,
			Logger:    config.Logger,
		})
	})
}
