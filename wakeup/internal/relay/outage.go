package relay

import (
	"context"
	"log/slog"
	"time"
)

// outageLog is how often outages are logged at most.
const outageLog = time.Minute

// outage logs the first failure and the recovery of one connection, and nothing
// in between. It belongs to one goroutine.
type outage struct {
	log    *slog.Logger
	fails  int
	said   bool // the log knows of this outage
	logged time.Time
}

func (o *outage) begin(ctx context.Context, message string, err error) {
	o.fails++
	if now := time.Now(); !o.said && (o.logged.IsZero() || now.Sub(o.logged) >= outageLog) {
		o.said, o.logged = true, now
		o.log.WarnContext(ctx, message, "error", err)
	}
}

func (o *outage) over(ctx context.Context, message string) {
	if o.said {
		o.log.InfoContext(ctx, message, "failures", o.fails)
	}
	o.said = false
}
