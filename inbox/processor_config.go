package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/letterbox-go/letterbox/mediator"
)

// ProcessorConfig holds the settings of a Processor. At least one of Requests
// and Events is required; everything else has a default.
type ProcessorConfig struct {
	// Requests and Events serve the messages: the mediators that the
	// application uses anyway. A type must not be bound in both.
	Requests *mediator.RequestMediator
	Events   *mediator.EventMediator

	// Workers is how many batches are processed at once. Each holds one
	// connection while it works. Default 4; on SQLite always 1: it has one
	// writer, and more workers would only queue up in front of acceptors.
	Workers int
	// BatchSize is how many messages share a transaction at most. Default 32.
	// When one fails, its neighbours run again, each alone: their effects in
	// the database happen once, but calls to other systems may repeat. 1 is for
	// handlers that cannot stand that.
	BatchSize int
	// BatchDuration ends a batch early between two messages. Default 1 s.
	BatchDuration time.Duration
	// PollInterval is how often an idle processor looks. Default 1 s, with jitter.
	PollInterval time.Duration

	// Timeout is how long one handler call may take. Default 30 s; negative: for ever.
	Timeout time.Duration
	// HandlerGrace is how long a cancelled handler may take to return. After
	// that it is abandoned and its transaction rolled back. Default 5 s.
	HandlerGrace time.Duration
	// ShutdownGrace is how long Run lets handlers finish once its context has
	// ended, before it cancels them. Default 20 s; negative: not at all.
	ShutdownGrace time.Duration

	// MaxAttempts is after how many failed attempts a message is dead. Default 5.
	MaxAttempts int
	// MaxInterruptions is after how many runs that the database broke off
	// (deadlocks, lost connections) a message is dead. Default 100.
	MaxInterruptions int
	// MaxCrashes is how often a message may have been at work alone when its
	// process died, before it is dead. Default 3. The first crashes, which come
	// before anybody is careful, are not counted.
	MaxCrashes int
	// Heartbeat is how often the processor renews its row in the database. After
	// three missed ones it counts as crashed; then all processors start messages
	// one at a time for twelve. Default 5 s.
	Heartbeat time.Duration
	// Backoff is the delay between attempts.
	Backoff Backoff
	// Names overrides settings for single names.
	Names map[string]Policy

	// SweepInterval is how often Run removes what is past Config.Retention, the
	// first time after half of it. Default 10 min, with jitter; negative: never.
	SweepInterval time.Duration

	// Isolation of the transactions on PostgreSQL. Default: read committed.
	Isolation sql.IsolationLevel
	// OnDead is called when a message dies, in the transaction that records
	// it: what it writes through DB commits with the death. An error or a
	// panic undoes its writes and is logged; the message is dead all the same.
	OnDead func(ctx context.Context, message Info, cause error) error
	// Logger receives failed attempts, deaths and outages. Default: the
	// repository's.
	Logger *slog.Logger
}

// Policy overrides ProcessorConfig for one name. Zero fields do not override.
type Policy struct {
	Timeout     time.Duration
	MaxAttempts int
	Backoff     Backoff
	// OnDead says what a dead message does to its ordering key. Default: Park.
	OnDead OnDead
	// Concurrency is how many batches of this processor may hold messages of
	// this name at once. Default: no limit of its own.
	Concurrency int
}

// OnDead is what a dead message does to the later ones of its ordering key.
type OnDead uint8

const (
	// Park: they wait until an operator retries, discards or skips it.
	Park OnDead = iota
	// Continue: they are processed without it.
	Continue
)

func (c *ProcessorConfig) setDefaults(repo *Repository) {
	setDefault(&c.Workers, 4)
	if repo.dialect == sqliteDialect {
		c.Workers = min(c.Workers, 1) // a negative one is still refused
	}
	setDefault(&c.BatchSize, 32)
	setDefault(&c.BatchDuration, time.Second)
	setDefault(&c.PollInterval, time.Second)
	setDefault(&c.Timeout, 30*time.Second)
	setDefault(&c.HandlerGrace, 5*time.Second)
	setDefault(&c.ShutdownGrace, 20*time.Second)
	setDefault(&c.SweepInterval, 10*time.Minute)
	setDefault(&c.MaxAttempts, 5)
	setDefault(&c.MaxInterruptions, 100)
	setDefault(&c.MaxCrashes, 3)
	setDefault(&c.Heartbeat, 5*time.Second)
	setDefault(&c.Isolation, sql.LevelReadCommitted)
	c.Backoff.setDefaults()
	if c.Logger == nil {
		c.Logger = repo.config.Logger
	}
}

// validate joins every problem.
func (c *ProcessorConfig) validate(repo *Repository) error {
	var problems []error
	report := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("inbox: processor config: "+format, args...))
	}
	if c.Requests == nil && c.Events == nil {
		report("Requests or Events is required")
	}
	for _, positive := range []struct {
		field string
		value int64
	}{
		{"Workers", int64(c.Workers)},
		{"BatchSize", int64(c.BatchSize)},
		{"BatchDuration", int64(c.BatchDuration)},
		{"PollInterval", int64(c.PollInterval)},
		{"HandlerGrace", int64(c.HandlerGrace)},
		{"MaxAttempts", int64(c.MaxAttempts)},
		{"MaxInterruptions", int64(c.MaxInterruptions)},
		{"MaxCrashes", int64(c.MaxCrashes)},
		{"Heartbeat", int64(c.Heartbeat)},
		{"Backoff.Base", int64(c.Backoff.Base)},
		{"Backoff.Max", int64(c.Backoff.Max)},
	} {
		if positive.value < 0 {
			report("%s: negative", positive.field)
		}
	}
	for name, policy := range c.Names {
		if reg := repo.names.forName(name); reg == nil || reg.Name != name {
			report("Names: %q is not a registered name", name)
		}
		if policy.MaxAttempts < 0 || policy.Concurrency < 0 || policy.Backoff.Base < 0 || policy.Backoff.Max < 0 {
			report("Names: %q: negative", name)
		}
	}
	return errors.Join(problems...)
}

// policies resolves the settings of every stored name, former ones included.
func (c *ProcessorConfig) policies(names *NameMap) map[string]Policy {
	all := map[string]Policy{}
	for _, reg := range names.registrations() {
		policy := c.Names[reg.Name]
		setDefault(&policy.Timeout, c.Timeout)
		setDefault(&policy.MaxAttempts, c.MaxAttempts)
		if policy.Backoff == (Backoff{}) {
			policy.Backoff = c.Backoff
		}
		policy.Backoff.setDefaults()
		for _, name := range reg.names() {
			all[name] = policy
		}
	}
	return all
}
