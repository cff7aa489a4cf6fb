package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// HealthConfig holds the settings of a Health. The zero value is ready to use.
type HealthConfig struct {
	// MaxAge is how long the oldest due message may have been waiting before the
	// process is not ready. Default: any time. With a limit, a backlog makes
	// every process of a service unready at once: set it where only processors
	// run, and alert on the age elsewhere.
	MaxAge time.Duration
	// MaxSilence is how long the processor may go without a completed poll. A
	// longer silence is not ready; and not alive, if the database answers.
	// Default: a minute more than the longest step by the settings of the
	// processor. Negative, or where a handler has no timeout: any time.
	MaxSilence time.Duration
	// Timeout bounds what a check asks of the database. Default 500 ms, half of
	// what an orchestrator grants a probe.
	Timeout time.Duration
	// Fresh is how long a report stands: checks that come sooner share it, so
	// that probes are no load. Default 1 s; negative: every check asks.
	Fresh time.Duration
}

// Health answers the two questions of an orchestrator about an inbox: should
// this process be restarted (no, while it is live), and should it get work (yes,
// while it is ready). It is safe for concurrent use.
type Health struct {
	repo   *Repository
	proc   *Processor
	config HealthConfig
	quiet  atomic.Int64 // until when no poll was to be expected, in nanoseconds since 1970

	mu     sync.Mutex // held while the database is asked
	report HealthReport
}

// HealthReport is what a check found. A problem is a plain sentence without
// anything of the database's error, so that it may be shown.
type HealthReport struct {
	// Live is false when the processor is stuck although the database answers:
	// a restart may help. A database that is away, read-only or behind never
	// costs it.
	Live bool
	// Ready is true when messages can be stored and, with a processor, processed.
	Ready bool
	// Problems say why not, in a fixed order.
	Problems []string
	// Err is the database's error, if there was one, for the log.
	Err error

	// Writable is true when the database answers and takes writes.
	Writable bool
	// Running is true while the processor's Run is under way.
	Running bool
	// LastPoll is when the processor last completed a look for due messages,
	// by this process's clock; zero without a processor, or before the first.
	LastPoll time.Time
	// OldestDue is how long the oldest due message has been waiting; zero if
	// that is not known.
	OldestDue time.Duration
	// CheckedAt is when the database was asked.
	CheckedAt time.Time
}

// NewHealth returns a Health of repo and of a processor of this process; nil for
// a process that only accepts.
func NewHealth(repo *Repository, processor *Processor, config HealthConfig) (*Health, error) {
	if repo == nil {
		return nil, errors.New("inbox: NewHealth needs a repository")
	}
	if config.MaxAge < 0 || config.Timeout < 0 {
		return nil, errors.New("inbox: health config: MaxAge and Timeout must not be negative")
	}
	setDefault(&config.Timeout, 500*time.Millisecond)
	setDefault(&config.Fresh, time.Second)
	if config.MaxSilence == 0 && processor != nil {
		config.MaxSilence = processor.longestStep()
	}
	h := &Health{repo: repo, proc: processor, config: config}
	h.excuse()
	return h, nil
}

// Live reports whether the process should go on. It asks the database only when
// the processor has been silent for too long, to learn which of them is at fault.
func (h *Health) Live(ctx context.Context) bool {
	return !h.silent(time.Now()) || h.Check(ctx).Live
}

// Check asks the database and the processor. It takes no longer than
// HealthConfig.Timeout and writes nothing. The end of ctx does not end it, since
// others share the report.
func (h *Health) Check(ctx context.Context) HealthReport {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.report.CheckedAt) >= h.config.Fresh {
		h.report = h.check(context.WithoutCancel(ctx))
	}
	report := h.report
	report.Problems = slices.Clone(report.Problems)
	return report
}

func (h *Health) check(ctx context.Context) (r HealthReport) {
	ctx, cancel := context.WithTimeout(ctx, h.config.Timeout)
	defer cancel()
	r.CheckedAt = time.Now()
	problem := func(text string) { r.Problems = append(r.Problems, text) }
	r.Writable, r.Err = h.repo.writable(ctx)
	if r.Err == nil {
		backlog, err := h.repo.Backlog(ctx, 0)
		if r.OldestDue = backlog.OldestDue; !h.repo.busy(err) {
			r.Err = err
		}
	}
	switch {
	case r.Err != nil:
		problem("the database does not answer as it should")
	case !r.Writable:
		problem("the database is read-only")
	}
	if r.Err != nil {
		h.excuse() // the processor cannot poll, and needs a while afterwards
	}
	r.Live = true
	if h.proc != nil {
		h.checkProcessor(&r, problem)
	}
	if h.config.MaxAge > 0 && r.OldestDue > h.config.MaxAge {
		problem("the oldest due message has been waiting for too long")
	}
	r.Ready = len(r.Problems) == 0
	return r
}

func (h *Health) checkProcessor(r *HealthReport, problem func(string)) {
	r.Running = h.proc.running.Load()
	if at := h.proc.polls.completed.Load(); at != 0 {
		r.LastPoll = time.Unix(0, at)
	}
	switch {
	case !r.Running:
		problem("the processor is not running")
	case h.silent(r.CheckedAt):
		r.Live = false
		problem("the processor is stuck: it has not polled for too long, and the database answers")
	case h.tooLong(h.proc.polls.completed.Load(), r.CheckedAt) && h.tooLong(h.quiet.Load(), r.CheckedAt):
		problem("the processor's polls fail")
	}
}

// silent reports that the running processor should have come back from a step,
// in success or failure, long ago.
func (h *Health) silent(now time.Time) bool {
	if h.proc == nil {
		return false
	}
	if !h.proc.running.Load() {
		h.excuse()
		return false
	}
	return h.tooLong(max(h.proc.polls.ended.Load(), h.quiet.Load()), now)
}

// excuse begins the silence anew.
func (h *Health) excuse() { h.quiet.Store(time.Now().UnixNano()) }

func (h *Health) tooLong(since int64, now time.Time) bool {
	return h.config.MaxSilence > 0 && now.Sub(time.Unix(0, since)) > h.config.MaxSilence
}

// polls are when a processor last came back from a step, in nanoseconds since 1970.
type polls struct {
	ended     atomic.Int64 // whether the database answered or not
	completed atomic.Int64 // it did
}

func (p *polls) note(err error) {
	now := time.Now().UnixNano()
	p.ended.Store(now)
	if err == nil {
		p.completed.Store(now)
	}
}

// longestStep is how long a worker may take for a step, and a minute; negative
// where nothing bounds it. A batch that fails is run message by message, and
// each notes a poll.
func (p *Processor) longestStep() time.Duration {
	longest := p.config.Timeout
	for _, policy := range p.policies {
		if policy.Timeout < 0 {
			return -1
		}
		longest = max(longest, policy.Timeout)
	}
	if p.config.Timeout < 0 {
		return -1
	}
	// A handler, the hook of a dead message, the batch before, and the pauses.
	return time.Minute + 2*(longest+p.config.HandlerGrace) + p.config.BatchDuration + p.config.PollInterval + outageBackoff.Max
}

// writable reports that the database takes writes, without one. A SQLite that
// is busy takes writes.
func (r *Repository) writable(ctx context.Context) (writable bool, err error) {
	if r.dialect == postgresDialect {
		err := r.scan(ctx, r.db.DB, &writable, postgresWritable)
		return writable, err
	}
	err = r.tryLock(ctx)
	switch {
	case err == nil, r.busy(err):
		return true, nil
	case sqliteCode(err) == sqliteReadOnly:
		return false, nil
	}
	return false, err
}

// tryLock takes the write lock of SQLite and gives it back at once. It does not
// wait for it: the busy timeout, which no context ends, is put aside meanwhile.
func (r *Repository) tryLock(ctx context.Context) error {
	conn, err := r.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	var before, now int
	if err := r.scan(ctx, conn.Conn, &before, `PRAGMA busy_timeout`); err != nil {
		return err
	}
	if err := r.scan(ctx, conn.Conn, &now, `PRAGMA busy_timeout = 0`); err != nil {
		return err
	}
	_, err = r.exec(ctx, conn.Conn, r.text(sqliteLock))
	ctx, cancel := detached(ctx)
	defer cancel()
	if restore := r.scan(ctx, conn.Conn, &now, fmt.Sprintf(`PRAGMA busy_timeout = %d`, before)); restore != nil {
		return errors.Join(err, restore)
	}
	return err
}

// busy reports that somebody else is at work in SQLite, or has its connection.
func (r *Repository) busy(err error) bool {
	return r.dialect == sqliteDialect && (errors.Is(err, context.DeadlineExceeded) || r.dialect.retryCode(err) != "")
}

const (
	sqliteReadOnly = 8 // https://www.sqlite.org/rescode.html#readonly

	// A standby, a server that is set to read-only, and a pool whose sessions are.
	postgresWritable = `SELECT NOT pg_is_in_recovery() AND NOT current_setting('transaction_read_only')::boolean`
)
