package relay

import (
	"context"
	"testing"
	"time"
)

func TestPause(t *testing.T) {
	t.Parallel()
	config := Config{Interval: 5 * time.Millisecond}
	for shared, want := range map[int]time.Duration{
		0: time.Millisecond, 1: time.Millisecond, 2: 2 * time.Millisecond, 5: 5 * time.Millisecond, 1000: 5 * time.Millisecond,
	} {
		if got := config.pause(shared); got != want {
			t.Errorf("%d share: %v, want %v", shared, got, want)
		}
	}
}

// soon is more than a pause after one, and less than the interval.
const (
	longInterval = 5 * time.Second
	soon         = 4 * time.Second
)

// One notification after another is handed on long before the interval is over,
// and what comes during the pause makes the next one longer.
func TestFewNotificationsDoNotWaitForTheInterval(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	woken := make(chan time.Time, 1)
	p := pacer{pending: make(chan struct{}, 1)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.run(ctx, &Config{Interval: longInterval}, func() { woken <- time.Now() })
	}()
	for range 2 {
		p.heard()
		select {
		case <-woken:
		case <-time.After(soon):
			t.Fatal("a notification that is alone waits for the interval")
		}
	}
	for range crowd {
		p.heard()
	}
	crowded := <-woken
	p.heard()
	if next := <-woken; next.Sub(crowded) < longInterval {
		t.Errorf("the next after many came %v later, want %v at least", next.Sub(crowded), longInterval)
	}
	cancel()
	<-ended
}

// sent is an outlet that tells when something is sent.
type sent chan time.Time

func (s sent) Send(context.Context, []string) error { s <- time.Now(); return nil }
func (s sent) Close()                               {}

func TestFewCommitsDoNotWaitForTheInterval(t *testing.T) {
	t.Parallel()
	out := make(sent, 1)
	config := Config{Interval: longInterval}
	config.SetDefaults()
	s := NewSender(config, func(context.Context) (Outlet, error) { return out, nil })
	defer s.Close()
	for range 2 {
		s.Notify("table")
		select {
		case <-out:
		case <-time.After(soon):
			t.Fatal("a commit that is alone waits for the interval")
		}
	}
	for range crowd {
		s.Notify("table")
	}
	crowded := <-out
	s.Notify("table")
	if next := <-out; next.Sub(crowded) < longInterval {
		t.Errorf("the next after many came %v later, want %v at least", next.Sub(crowded), longInterval)
	}
}
