package inbox

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// outageLog is how often an outage that lasts is logged again.
const outageLog = time.Minute

// outage keeps the workers of a processor away from a database that fails:
// together, with a growing delay and jitter.
type outage struct {
	mu     sync.Mutex
	fails  int
	since  time.Time
	until  time.Time
	logged time.Time
}

var outageBackoff = Backoff{Base: 200 * time.Millisecond, Max: 15 * time.Second}

// begin notes a failure. Failures of workers that started before the pause do
// not prolong it.
func (o *outage) begin(ctx context.Context, log *slog.Logger, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if now.Before(o.until) {
		return
	}
	o.fails++
	if o.fails == 1 {
		o.since = now
	}
	// At least half of the delay, so that a failing database has a rest.
	delay := outageBackoff.ceiling(o.fails) / 2
	o.until = now.Add(delay + Backoff{Base: delay, Max: delay}.Delay(1))
	if now.Sub(o.logged) >= outageLog {
		o.logged = now
		log.WarnContext(ctx, "inbox: the database fails; the processor waits and tries again",
			"failures", o.fails, "error", errorText(err))
	}
}

// over notes a success.
func (o *outage) over(ctx context.Context, log *slog.Logger) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fails == 0 {
		return
	}
	log.InfoContext(ctx, "inbox: the database answers again", "failures", o.fails, "after", time.Since(o.since))
	o.fails, o.logged = 0, time.Time{}
}

// wait returns when the pause is over, or with the error of ctx.
func (o *outage) wait(ctx context.Context) error {
	o.mu.Lock()
	pause := time.Until(o.until)
	o.mu.Unlock()
	if pause <= 0 {
		return nil
	}
	return sleep(ctx, pause)
}
