package inbox

import (
	"context"
	"runtime/pprof"
	"slices"
	"sync"
)

// runner is a goroutine that runs handler calls, one after another: a new one for
// each would have to grow its stack each time.
type runner chan func()

// runners are those of a session which are idle.
type runners struct {
	mu     sync.Mutex
	idle   []runner
	closed bool
}

// withRunners returns a context whose handler calls share goroutines until end.
func withRunners(ctx context.Context) (_ context.Context, end func()) {
	r := &runners{}
	return context.WithValue(ctx, runnersKey, r), r.close
}

// start runs fn in a goroutine with the profiler's labels of ctx. Call release
// when fn has returned, or has to be left alone, with true if the goroutine may
// run another: not when it has ended with runtime.Goexit, or goes on.
func start(ctx context.Context, fn func()) (release func(again bool)) {
	pool, ok := ctx.Value(runnersKey).(*runners)
	if !ok {
		go fn()
		return func(bool) {}
	}
	r := pool.take()
	r <- func() {
		pprof.SetGoroutineLabels(ctx)
		fn()
	}
	return func(again bool) {
		if !again || !pool.give(r) {
			close(r)
		}
	}
}

func (p *runners) take() runner {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle); n > 0 {
		r := p.idle[n-1]
		p.idle = slices.Delete(p.idle, n-1, n)
		return r
	}
	r := make(runner)
	go func() {
		for fn := range r {
			fn()
		}
	}()
	return r
}

func (p *runners) give(r runner) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.idle = append(p.idle, r)
	return true
}

func (p *runners) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, r := range p.idle {
		close(r)
	}
	p.idle = nil
}
