package inbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"
)

const (
	// beatsToLapse and beatsOfCaution count heartbeats: how many a processor may
	// miss, and for how many its crash makes the others careful.
	beatsToLapse   = 3
	beatsOfCaution = 12
	// keysToAudit is how many ordering keys are looked at per heartbeat.
	keysToAudit = 1000
)

// thisProcess tells this process from an earlier one with the same pid.
var thisProcess = sync.OnceValue(func() string { return uuid.Must(uuid.NewV7()).String() })

// heartbeat keeps the row of a processor. The row lapses when the process dies
// without a farewell; whoever notices that makes all processors careful.
type heartbeat struct {
	p       *Processor
	pulse   pulse
	conn    *bun.Conn // its own, where the pool has one to spare
	audited string    // the last ordering key
	looked  bool      // for processors of this host that are gone
	failed  bool      // and logged
}

// beat keeps the processor's row until stop is called, which takes it away.
// When beat returns, crashes of others are known.
func (p *Processor) beat(ctx context.Context) (stop func()) {
	h := p.newHeartbeat(ctx)
	beating, cancel := context.WithCancel(context.WithoutCancel(ctx)) // handlers may outlast ctx
	var group sync.WaitGroup
	group.Go(func() { h.run(beating) })
	return func() {
		cancel()
		group.Wait()
		h.end(ctx)
	}
}

// newHeartbeat writes the row and looks for crashes before the first claim.
func (p *Processor) newHeartbeat(ctx context.Context) *heartbeat {
	host, _ := os.Hostname()
	names, _ := json.Marshal(p.names)
	every := p.config.Heartbeat
	h := &heartbeat{p: p, pulse: pulse{
		id: p.id, host: host, process: thisProcess(), names: string(names),
		pid: os.Getpid(), workers: p.config.Workers,
		lapse: beatsToLapse * every, caution: beatsOfCaution * every,
	}}
	if p.repo.dialect == sqliteDialect {
		h.pulse.lapse += max(p.config.Timeout, 0) // a handler keeps the heartbeat waiting
	}
	if limit := p.repo.db.Stats().MaxOpenConnections; p.repo.dialect == postgresDialect && (limit == 0 || limit > p.config.Workers+1) {
		h.conn = &bun.Conn{}
	}
	h.beat(ctx)
	return h
}

// run beats until ctx ends.
func (h *heartbeat) run(ctx context.Context) {
	ticker := time.NewTicker(h.p.config.Heartbeat)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			h.beat(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// beat is one of them. A database that does not answer is no reason to stop.
func (h *heartbeat) beat(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, max(h.p.config.Heartbeat, time.Second))
	defer cancel()
	err := h.renew(bounded)
	if err == nil {
		err = h.audit(bounded)
	}
	if err != nil && !h.failed && ctx.Err() == nil {
		h.p.log.WarnContext(ctx, "inbox: the heartbeat fails", "error", errorText(err))
	}
	h.failed = err != nil
}

// renew renews the row, notices crashes and writes the counters down.
func (h *heartbeat) renew(ctx context.Context) error {
	p := h.p
	counts := p.counts.take()
	var noticed int64
	var careful time.Duration
	err := h.inTransaction(ctx, func(ctx context.Context, tx querier) (err error) {
		pulse := h.pulse
		if !h.looked {
			if pulse.gone, err = h.gone(ctx, tx); err != nil {
				return err
			}
		}
		if noticed, careful, err = p.life().beat(ctx, tx, pulse); err != nil || len(counts) == 0 {
			return err
		}
		return p.life().addMinute(ctx, tx, counts)
	})
	if err != nil {
		p.counts.giveBack(counts)
		return err
	}
	h.looked = true
	p.careful.Store(time.Now().Add(careful).UnixNano())
	if noticed > 0 {
		p.log.WarnContext(ctx, "inbox: a processor has crashed; messages are started one at a time for a while",
			"crashed", noticed, "for", careful)
	}
	return nil
}

// gone returns the processors of this host whose process is no more.
func (h *heartbeat) gone(ctx context.Context, tx querier) (ids []string, err error) {
	others, err := h.p.life().predecessors(ctx, tx, h.pulse)
	for id, pid := range others {
		if pid == h.pulse.pid || !alive(pid) {
			ids = append(ids, id)
		}
	}
	return ids, err
}

// alive is true where nobody knows.
func alive(pid int) bool {
	process, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	err = process.Signal(syscall.Signal(0))
	return !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, syscall.ESRCH)
}

// audit makes parked messages claimable that nobody else would wake.
func (h *heartbeat) audit(ctx context.Context) error {
	p := h.p
	return h.inTransaction(ctx, func(ctx context.Context, tx querier) error {
		stuck, last, err := p.life().audit(ctx, tx, h.audited, keysToAudit)
		if err != nil {
			return err
		}
		h.audited = last
		if len(stuck) == 0 {
			return nil
		}
		u, err := p.repo.store.unpark(ctx, tx, stuck, p.config.BatchSize)
		if err == nil && len(u.marks) > 0 {
			p.wakeAfter(time.Millisecond)
		}
		return err
	})
}

// end takes the row away: this was no crash.
func (h *heartbeat) end(ctx context.Context) {
	ctx, cancel := detached(ctx)
	defer cancel()
	p := h.p
	counts := p.counts.take()
	err := h.inTransaction(ctx, func(ctx context.Context, tx querier) error {
		if len(counts) > 0 {
			if err := p.life().addMinute(ctx, tx, counts); err != nil {
				return err
			}
		}
		return p.life().farewell(ctx, tx, p.id)
	})
	if err != nil {
		p.log.WarnContext(ctx, "inbox: the processor could not sign off; others will be careful for a while", "error", errorText(err))
	}
	if h.conn != nil && h.conn.Conn != nil {
		_ = h.conn.Close()
	}
}

// inTransaction uses the heartbeat's own connection, where there is one.
func (h *heartbeat) inTransaction(ctx context.Context, fn func(ctx context.Context, tx querier) error) error {
	if h.conn == nil {
		return h.p.repo.inTransaction(ctx, txOptions{isolation: sql.LevelReadCommitted}, fn)
	}
	if h.conn.Conn == nil {
		conn, err := h.p.repo.db.Conn(ctx)
		if err != nil {
			return err
		}
		*h.conn = conn
	}
	err := h.p.repo.onConn(ctx, *h.conn, txOptions{isolation: sql.LevelReadCommitted}, fn)
	if err != nil {
		_ = h.conn.Close()
		*h.conn = bun.Conn{}
	}
	return err
}

// life is the part of the store that the heartbeat uses.
func (p *Processor) life() lifeline { return p.repo.store.(lifeline) }
