// Package relay is what the wakers of all drivers share: pacing, reconnecting,
// the names of channels, and how outages are logged. It knows no driver.
package relay

import (
	"context"
	"log/slog"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
)

// StepTimeout bounds everything that a waker waits for and that is not a
// notification: connecting, one statement.
const StepTimeout = 10 * time.Second

// Config holds the settings that all wakers have; see wakeup.Config.
type Config struct {
	Logger    *slog.Logger
	Interval  time.Duration
	Idle      time.Duration
	KeepAlive time.Duration
	Backoff   inbox.Backoff
}

// SetDefaults replaces zero values.
func (c *Config) SetDefaults() {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	for _, d := range []struct {
		value    *time.Duration
		fallback time.Duration
	}{
		{&c.Interval, 5 * time.Millisecond},
		{&c.Idle, time.Minute},
		{&c.KeepAlive, 30 * time.Second},
		{&c.Backoff.Base, 100 * time.Millisecond},
		{&c.Backoff.Max, 15 * time.Second},
	} {
		if *d.value <= 0 {
			*d.value = d.fallback
		}
	}
}

// crowd is how many that share a wake-up make it a busy time.
const crowd = 5

// pause is the time until the next wake-up when so many have shared the last:
// Interval while many come, so that each costs little, and a part of it while few
// do, so that none waits long.
func (c *Config) pause(shared int) time.Duration {
	return c.Interval * time.Duration(min(max(shared, 1), crowd)) / crowd
}

// delay is the pause after n failures: jitter, but never none at all.
func (c *Config) delay(n int) time.Duration { return c.Interval + c.Backoff.Delay(n) }

// Sleep waits until the delay is over, or ctx.
func Sleep(ctx context.Context, delay time.Duration) {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
