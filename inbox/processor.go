package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"
)

// Processor claims messages, hands them to the mediators and commits what the
// handlers wrote together with the messages' status. Any number of processors
// may work on one inbox. It is safe for concurrent use.
type Processor struct {
	id       string
	repo     *Repository
	config   ProcessorConfig
	log      *slog.Logger
	names    []string // those with a handler here, former ones included
	routes   map[string]route
	policies map[string]Policy
	limits   limits
	marks    marks
	missed   missed
	outage   outage
	turn     atomic.Uint64 // rotates the names
	wake     chan struct{}
	running  atomic.Bool
	leaked   atomic.Int64
	counts   counts
	careful  atomic.Int64 // until when, in nanoseconds since 1970
	polls    polls
}

// route sends decoded messages to the mediator that serves their type.
type route struct {
	one  func(ctx context.Context, message any) error
	many func(ctx context.Context, messages []any) error // nil without a batch handler
}

// NewProcessor returns a Processor for the messages of repo. It serves the
// registered names whose types have a handler by now; all others are left alone.
func NewProcessor(repo *Repository, config ProcessorConfig) (*Processor, error) {
	if repo == nil {
		return nil, errors.New("inbox: NewProcessor needs a repository")
	}
	config.setDefaults(repo)
	if err := config.validate(repo); err != nil {
		return nil, err
	}
	id := uuid.Must(uuid.NewV7()).String()
	p := &Processor{
		id:       id,
		repo:     repo,
		config:   config,
		log:      config.Logger.With("processor", id),
		routes:   map[string]route{},
		policies: config.policies(repo.names),
		wake:     make(chan struct{}, 1),
	}
	for _, reg := range repo.names.registrations() {
		route, err := p.route(reg)
		if err != nil {
			return nil, err
		}
		if route.one == nil {
			continue
		}
		for _, name := range reg.names() {
			p.names = append(p.names, name)
			p.routes[name] = route
		}
		if n := p.policies[reg.Name].Concurrency; n > 0 {
			p.limits.add(reg.names(), n, p.wake)
		}
	}
	if len(p.names) == 0 {
		return nil, errors.New("inbox: no registered message type has a handler: bind handlers before NewProcessor")
	}
	return p, nil
}

// route is empty where this processor has no handler.
func (p *Processor) route(reg *registration) (r route, err error) {
	requests := p.config.Requests != nil && p.config.Requests.Handles(reg.typ)
	events := p.config.Events != nil && p.config.Events.Handles(reg.typ)
	switch {
	case requests && events:
		return route{}, fmt.Errorf("inbox: %s is bound as a request and as an event", reg.typ)
	case requests:
		r.one = func(ctx context.Context, message any) error {
			_, err := p.config.Requests.Send(ctx, message)
			return err
		}
		if p.config.Requests.HandlesBatch(reg.typ) {
			r.many = p.config.Requests.SendBatch
		}
	case events:
		r.one = p.config.Events.Send
	}
	return r, nil
}

// policy returns the settings of a stored name.
func (p *Processor) policy(name string) Policy { return p.policies[name] }

// session is one call of Run or Drain.
type session struct {
	stop context.Context // when it ends: no new claims, batches end early
	work context.Context // when it ends, after the grace: handlers are cancelled
}

// session derives both from ctx. Call end when all work is done.
func (p *Processor) session(ctx context.Context) (s session, end func()) {
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	work, endRunners := withRunners(work)
	stop := context.AfterFunc(ctx, func() {
		if sleep(work, max(p.config.ShutdownGrace, 0)) == nil {
			cancel(errShutdown)
		}
	})
	return session{stop: ctx, work: work}, func() {
		stop()
		cancel(nil)
		endRunners()
	}
}

// Run processes messages until ctx ends. Then it claims no more, lets running
// handlers finish within ShutdownGrace, cancels them, and returns nil; what was
// cancelled is rolled back and claimable at once. A database that is away is
// waited for.
//
// ErrRunning, ErrNotMigrated, ErrSchemaNewer; an error if handlers had to be
// abandoned because they ignored their cancelled context.
func (p *Processor) Run(ctx context.Context) error {
	if !p.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer p.running.Store(false)
	if err := p.start(ctx); err != nil {
		return err
	}
	stopBeating := p.beat(ctx)
	defer stopBeating()
	subscription, unsubscribe := p.repo.subscribe()
	defer unsubscribe()
	session, end := p.session(ctx)
	defer end()

	leaked := p.leaked.Load()
	var group sync.WaitGroup
	p.listen(ctx, &group)
	for range p.config.Workers {
		group.Go(func() { p.work(session) })
	}
	group.Go(func() { p.poll(ctx, subscription) })
	group.Go(func() { p.sweepLoop(ctx) })
	group.Wait()
	if n := p.leaked.Load() - leaked; n > 0 {
		return fmt.Errorf("inbox: stopped with %d abandoned handlers", n)
	}
	return nil
}

// start checks what can be checked while the database answers.
func (p *Processor) start(ctx context.Context) error {
	all, err := migrations(p.repo.dialect)
	if err != nil {
		return err
	}
	version, err := p.repo.store.version(ctx, p.repo.db.DB)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil
	case err != nil:
		p.log.WarnContext(ctx, "inbox: the database does not answer yet", "error", errorText(err))
		return nil
	case version == 0:
		return ErrNotMigrated
	case version > len(all):
		return fmt.Errorf("%w: version %d, this program knows %d", ErrSchemaNewer, version, len(all))
	case version < len(all):
		return fmt.Errorf("%w: they have version %d, this program needs %d", ErrNotMigrated, version, len(all))
	}
	if err := p.repo.store.check(ctx); err != nil && ctx.Err() == nil {
		p.log.WarnContext(ctx, "inbox: cannot read the database's settings", "error", errorText(err))
	}
	if limit := p.repo.db.Stats().MaxOpenConnections; p.repo.dialect == postgresDialect && limit > 0 && limit <= p.config.Workers {
		p.log.WarnContext(ctx, "inbox: the pool is no larger than the number of workers: a handler that asks it for another connection waits until its timeout",
			"pool", limit, "workers", p.config.Workers, "remedy", "raise SetMaxOpenConns, or let handlers use inbox.DB")
	}
	return nil
}

// poll wakes a worker after commits of this process and, with jitter, once per
// PollInterval.
func (p *Processor) poll(ctx context.Context, committed <-chan struct{}) {
	for {
		jitter := p.config.PollInterval / 5
		timer := time.NewTimer(p.config.PollInterval - jitter + rand.N(2*jitter+1))
		select {
		case <-timer.C:
		case <-committed:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return
		}
		signal(p.wake)
	}
}

// work is one worker.
func (p *Processor) work(s session) {
	size := batchSize{max: p.config.BatchSize}
	for s.stop.Err() == nil {
		if p.outage.wait(s.stop) != nil {
			return
		}
		progress, err := p.step(s, &size)
		p.polls.note(err)
		switch {
		case err != nil:
			p.failedStep(s, err)
		case progress.claimed == 0:
			p.outage.over(s.stop, p.log)
			select {
			case <-p.wake:
			case <-s.stop.Done():
			}
		default:
			p.outage.over(s.stop, p.log)
		}
	}
}

// failedStep keeps every worker away from a database that fails for a while.
// What the database only wants retried, this worker tries again soon.
func (p *Processor) failedStep(s session, err error) {
	p.marks.reset()
	switch {
	case s.stop.Err() != nil:
	case p.repo.dialect.retryCode(err) != "":
		_ = sleep(s.stop, rand.N(50*time.Millisecond))
	default:
		p.outage.begin(s.stop, p.log, err)
	}
}

// Drain processes messages until none is due, in the calling goroutine, and
// returns how many it processed. Retries that are due later are left. For tests,
// cron jobs, and embedded use. When ctx ends it stops as Run does and returns
// the error of ctx.
func (p *Processor) Drain(ctx context.Context) (processed int, err error) {
	if err := p.start(ctx); err != nil {
		return 0, err
	}
	if !p.running.Load() {
		stopBeating := p.beat(ctx)
		defer stopBeating()
	}
	session, end := p.session(ctx)
	defer end()
	p.marks.reset()
	size := batchSize{max: p.config.BatchSize}
	fromStart := true
	for ctx.Err() == nil {
		progress, err := p.step(session, &size)
		processed += progress.processed
		if err != nil {
			return processed, fmt.Errorf("inbox: drain: %w", err)
		}
		switch {
		case progress.claimed > 0:
			fromStart = false
		case fromStart:
			return processed, nil
		default: // something may have become visible behind the marks
			fromStart = true
			p.marks.reset()
		}
	}
	return processed, ctx.Err()
}

// Process runs the handler of a message that GetMany has claimed in tx, inside
// a savepoint, and records what became of it in tx. It never commits. nil means
// that the fate is recorded, whether the handler succeeded or not, or that the
// message is left for later, since an earlier one of its ordering key has failed:
// commit, then say Committed. After any error, roll back.
//
// ErrUnhandled: no handler here, nothing was done. ErrTransactionLost: the
// transaction ended under the handler. ErrNoTransaction.
func (p *Processor) Process(ctx context.Context, tx bun.IConn, message *Claimed) error {
	q, err := asTransaction(tx)
	if err != nil {
		return err
	}
	if message == nil {
		return errors.New("inbox: process: no message")
	}
	if _, ok := p.routes[message.Name]; !ok {
		return fmt.Errorf("%w: %q", ErrUnhandled, message.Name)
	}
	message.processor, message.result = p, nil
	if ok, err := p.repo.mayStart(ctx, q, message); err != nil || !ok {
		return err
	}
	result, err := p.processOne(ctx, q, message)
	if err == nil {
		message.result = &result
		return nil
	}
	if errors.Is(err, errTampered) {
		return errors.Join(err, p.salvage(ctx, message, &result, err))
	}
	return err
}

// Committed tells observers, the log and this processor's workers what Process
// recorded of messages, after the caller has committed.
func (p *Processor) Committed(ctx context.Context, messages ...*Claimed) {
	for _, m := range messages {
		if m != nil && m.processor == p && m.result != nil {
			p.report(ctx, m.result)
			m.result = nil
			signal(p.wake)
		}
	}
}
