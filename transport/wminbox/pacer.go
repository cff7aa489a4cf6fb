package wminbox

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// pacer spaces failures. Those that come while a pause is running share it: an
// outage is one outage, however many messages meet it.
type pacer struct {
	base, max time.Duration

	mu    sync.Mutex
	delay time.Duration // the length of the running, or last, pause
	until time.Time     // its end
}

// failed returns how long to wait.
func (p *pacer) failed() time.Duration {
	if p.base < 0 {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.delay > 0 && now.Sub(p.until) > 2*p.max { // long ago
		p.delay = 0
	}
	if now.After(p.until) {
		p.delay = min(max(2*p.delay, p.base), p.max)
		p.until = now.Add(p.delay)
	}
	// Not all at the same moment, and never at once.
	rest := p.until.Sub(now)
	return rest + rand.N(p.delay/4+1)
}

// succeeded makes the next pause a short one again.
func (p *pacer) succeeded() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = 0
}

// sleep waits, or returns the error of ctx.
func sleep(ctx context.Context, delay time.Duration) error {
	if delay <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
