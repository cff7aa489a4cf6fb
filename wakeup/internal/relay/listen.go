package relay

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// ProbeTimeout is how long a notification to oneself may take.
const ProbeTimeout = 2 * time.Second

// ErrSwallowed is what a session returns when a notification to itself did not
// arrive.
var ErrSwallowed = errors.New("wakeup: a notification to ourselves did not arrive")

const (
	// swallowedPause is how long it is until a server that swallowed
	// notifications is tried again, doubled each time: poolers come and go, and
	// a busy machine may have been slow.
	swallowedPause    = 15 * time.Second
	swallowedPauseMax = 10 * time.Minute
)

// Session opens a connection, listens, and blocks until that is lost. It calls
// up once it listens, and heard after each notification and once it knows that
// they arrive.
type Session func(ctx context.Context, up, heard func()) error

// Listen runs one session after another until ctx ends. It calls wake from one
// goroutine, with Config.pause between.
func Listen(ctx context.Context, config Config, session Session, wake func()) {
	pacer := pacer{pending: make(chan struct{}, 1)}
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { pacer.run(ctx, &config, wake) })

	lost := outage{log: config.Logger}
	swallowed := 0
	heard := func() {
		pacer.heard()
		if swallowed > 0 {
			swallowed = 0
			config.Logger.InfoContext(ctx, "wakeup: notifications arrive now")
		}
	}
	for {
		var since time.Time
		up := func() {
			since = time.Now()
			pacer.heard()
			lost.over(ctx, "wakeup: the connection that listens is back")
		}
		err := session(ctx, up, heard)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, ErrSwallowed) {
			if swallowed++; swallowed == 1 {
				config.Logger.WarnContext(ctx, "wakeup: notifications do not arrive, so processors only poll",
					"cause", "a pooler in transaction mode, most likely: it swallows LISTEN",
					"remedy", "give the Waker a connection string that leads to the server itself")
			}
			Sleep(ctx, min(swallowedPause<<min(swallowed-1, 10), swallowedPauseMax))
			continue
		}
		// A connection that lives for a while begins anew; one that dies at
		// once over and over is no better than none.
		if !since.IsZero() && time.Since(since) > config.Backoff.Max {
			lost.fails = 0
		}
		lost.begin(ctx, "wakeup: the connection that listens is lost; polling goes on", err)
		Sleep(ctx, config.delay(lost.fails))
	}
}

// pacer hands notifications on, the first at once, and those that come during
// the pause after it as one.
type pacer struct {
	pending chan struct{}
	shared  atomic.Int64 // notifications since the last wake-up
}

func (p *pacer) heard() {
	p.shared.Add(1)
	signal(p.pending)
}

func (p *pacer) run(ctx context.Context, config *Config, wake func()) {
	for {
		select {
		case <-p.pending:
		case <-ctx.Done():
			return
		}
		shared := p.shared.Swap(0)
		wake()
		Sleep(ctx, config.pause(int(shared)))
	}
}
