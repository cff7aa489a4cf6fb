package inbox_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/mediator"
)

// tortureEnv makes this test binary a child process of the torture test: its value
// is a tortured as JSON.
const tortureEnv = "LETTERBOX_TEST_TORTURE"

// tortured is what a child process of the torture test is told.
type tortured struct {
	Role     string `json:"role"` // "process", "accept"
	Target   target `json:"target"`
	Seed     uint64 `json:"seed"`
	Acceptor int    `json:"acceptor"`
	Round    int    `json:"round"` // the first that was not answered
}

// tortureChild does not return in a child process of the torture test.
func tortureChild() {
	text, child := os.LookupEnv(tortureEnv)
	if !child {
		return
	}
	var c tortured
	err := json.Unmarshal([]byte(text), &c)
	if err == nil {
		err = c.obey()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// The messages of the torture test: three names, so that one can be paused.
type (
	tortureJob struct {
		ID   string `json:"id"`
		Kind string `json:"kind"`
		Key  string `json:"key"`
		Ord  int64  `json:"ord"` // grows within a key
	}
	redJob   tortureJob
	greenJob tortureJob
	blueJob  tortureJob
)

var tortureNames = []string{"red", "green", "blue"}

const (
	tortureKeys      = 6 // per acceptor
	tortureBatch     = 5 // messages of a round, at most
	tortureBacklog   = 300
	torturePause     = 15 * time.Millisecond // between two rounds
	tortureReplayAge = 3 * time.Second
	// Long enough for a replay that has to wait for the database.
	tortureWindow  = 30 * time.Second
	tortureStrip   = time.Second
	tortureAnswers = 5 * time.Second // how long an accept may take
)

// config is the same for all processes.
func (c tortured) config() inbox.Config {
	var driverArgs []any
	if c.Target.Driver == "pgx" {
		driverArgs = []any{pgx.QueryExecModeCacheStatement}
	}
	return inbox.Config{
		DriverArgs: driverArgs,
		Retention:  inbox.Retention{DedupeWindow: tortureWindow, PayloadRetention: tortureStrip},
		Logger:     slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
}

func (tortured) names() *inbox.NameMap {
	names := inbox.NewNameMap()
	inbox.Register[redJob](names, tortureNames[0])
	inbox.Register[greenJob](names, tortureNames[1])
	inbox.Register[blueJob](names, tortureNames[2])
	return names
}

// obey works until it is told to stop, or until the parent is gone.
func (c tortured) obey() error {
	db, err := c.Target.open()
	if err != nil {
		return err
	}
	repo, err := inbox.NewRepository(db, c.names(), c.config())
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	if c.Role == "accept" {
		return c.accept(ctx, repo)
	}
	return c.process(ctx, db, repo)
}

func (c tortured) process(ctx context.Context, db *bun.DB, repo *inbox.Repository) error {
	requests := mediator.NewRequestMap()
	mediator.BindCommand(requests, func(ctx context.Context, j redJob) error { return tortureJob(j).handle(ctx, db) })
	mediator.BindCommand(requests, func(ctx context.Context, j greenJob) error { return tortureJob(j).handle(ctx, db) })
	mediator.BindCommand(requests, func(ctx context.Context, j blueJob) error { return tortureJob(j).handle(ctx, db) })
	p, err := inbox.NewProcessor(repo, inbox.ProcessorConfig{
		Requests:      mediator.NewRequestMediator(requests),
		Workers:       2,
		BatchSize:     8,
		PollInterval:  100 * time.Millisecond,
		ShutdownGrace: time.Second,
		Heartbeat:     100 * time.Millisecond, // so that nobody is careful all the time
		SweepInterval: time.Second,
		Backoff:       inbox.Backoff{Base: 20 * time.Millisecond, Max: 100 * time.Millisecond},
	})
	if err != nil {
		return err
	}
	return p.Run(ctx)
}

// handle writes its effect in any case; only a handler that returns nil may leave it.
func (j tortureJob) handle(ctx context.Context, db *bun.DB) error {
	m, _ := inbox.FromContext(ctx)
	tx := inbox.DB(ctx, db)
	var started *time.Time
	if j.Kind == "slow" {
		if err := tx.NewRaw(`SELECT clock_timestamp()`).Scan(ctx, &started); err != nil {
			return err
		}
		select {
		case <-time.After(time.Duration(rand.IntN(60)) * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if j.Kind == "kills" {
		forgiven, err := j.forgiven(ctx, tx)
		if err == nil && !forgiven {
			die()
		}
	}
	_, err := tx.NewRaw(`INSERT INTO effects (job, key, ord, started) VALUES (?, ?, ?, COALESCE(?, clock_timestamp()))`,
		j.ID, j.Key, j.Ord, started).Exec(ctx)
	if err != nil {
		return err
	}
	switch j.Kind {
	case "fails":
		if m.Attempt <= 2 {
			return inbox.RetryAfter(30*time.Millisecond, errors.New("not yet"))
		}
	case "postpones":
		if rand.IntN(2) == 0 {
			return inbox.Postpone(20 * time.Millisecond)
		}
	case "dies":
		forgiven, err := j.forgiven(ctx, tx)
		if err == nil && !forgiven {
			err = inbox.Permanent(errors.New("not forgiven"))
		}
		return err
	}
	return nil
}

// forgiven reports that the gremlin has found the message dead, and retried it.
func (j tortureJob) forgiven(ctx context.Context, tx bun.IDB) (forgiven bool, err error) {
	err = tx.NewRaw(`SELECT EXISTS (SELECT FROM forgiven WHERE job = ?)`, j.ID).Scan(ctx, &forgiven)
	return forgiven, err
}

// round is what an acceptor sends in one call: the same whenever it is asked for.
// A key belongs to one acceptor, so that its order is known.
func (c tortured) round(n int) []inbox.Entry {
	h := fnv.New64a()
	fmt.Fprint(h, c.Acceptor, " ", n)
	r := rand.New(rand.NewPCG(c.Seed, h.Sum64()))
	entries := make([]inbox.Entry, 1+r.IntN(tortureBatch))
	for i := range entries {
		kind := "innocent"
		switch at := r.IntN(2000); {
		case at < 1:
			kind = "kills"
		case at < 9:
			kind = "dies"
		case at < 60:
			kind = "fails"
		case at < 120:
			kind = "postpones"
		case at < 200:
			kind = "slow"
		}
		job := tortureJob{ID: fmt.Sprintf("%s-%d-%d-%d", kind, c.Acceptor, n, i), Kind: kind, Ord: int64(n)*tortureBatch + int64(i)}
		if key := r.IntN(2 * tortureKeys); key < tortureKeys {
			job.Key = fmt.Sprintf("%d-%d", c.Acceptor, key)
		}
		entries[i] = inbox.Entry{
			MessageID:   job.ID,
			OrderingKey: job.Key,
			Message:     []any{redJob(job), greenJob(job), blueJob(job)}[r.IntN(3)],
		}
	}
	return entries
}

// accept sends round after round, each until it is answered, and old ones again.
// It tells the parent on its standard output: "ack ROUND", "replay", "bad TEXT".
func (c tortured) accept(ctx context.Context, repo *inbox.Repository) error {
	out := bufio.NewWriter(os.Stdout)
	say := func(format string, args ...any) {
		fmt.Fprintf(out, format+"\n", args...)
		_ = out.Flush()
	}
	answered := map[int]time.Time{}
	for n := c.Round; ctx.Err() == nil; n++ {
		outcomes, ok := c.send(ctx, repo, n, time.Time{})
		if !ok {
			return nil // stopped: nobody was answered
		}
		for _, o := range outcomes {
			if o.Kind == inbox.Mismatch {
				say("bad %s is a mismatch", o.Identity.MessageID)
			}
		}
		answered[n] = time.Now()
		say("ack %d", n)
		if rand.IntN(5) == 0 {
			c.replay(ctx, repo, n, answered, say)
		}
		for tries := 0; ctx.Err() == nil; tries++ {
			if sleepFor(ctx, torturePause) != nil {
				break
			}
			if backlog, err := repo.Backlog(ctx, tortureBacklog); err == nil && backlog.Pending < tortureBacklog {
				break
			}
		}
	}
	return nil
}

// replay delivers an answered round again.
func (c tortured) replay(ctx context.Context, repo *inbox.Repository, n int, answered map[int]time.Time, say func(string, ...any)) {
	old := n - rand.IntN(20)
	at, known := answered[old]
	if !known || time.Since(at) > tortureReplayAge {
		return
	}
	outcomes, ok := c.send(ctx, repo, old, time.Now().Add(tortureWindow/3))
	if !ok {
		return
	}
	say("replay")
	for _, o := range outcomes {
		if o.Kind != inbox.Duplicate {
			say("bad %s was answered, and is %s when it comes again", o.Identity.MessageID, o.Kind)
		}
	}
}

// send accepts a round, until it is answered or has to give up.
func (c tortured) send(ctx context.Context, repo *inbox.Repository, n int, until time.Time) ([]inbox.Outcome, bool) {
	entries := c.round(n)
	for {
		try, cancel := context.WithTimeout(context.WithoutCancel(ctx), tortureAnswers)
		outcomes, err := repo.Accept(try, entries)
		cancel()
		if err == nil {
			return outcomes, true
		}
		if !until.IsZero() && time.Now().After(until) || sleepFor(ctx, 20*time.Millisecond) != nil {
			return nil, false
		}
	}
}

func sleepFor(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
