package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"time"
)

// scale says how much is measured.
type scale struct {
	rounds  int
	rows    int     // a drain at full share
	accepts int     // an accept at 16 callers
	history int     // processed rows in the growth case
	junk    int     // dead and as many scheduled rows; a quarter as many of foreign names
	backlog int     // under a held snapshot
	memory  int     // drained by the child process
	seconds float64 // of a latency case
	// latencyRounds is the most of them.
	latencyRounds int
	tuneRows      int
	patience      time.Duration // with one measurement
}

var (
	fullScale = scale{
		rounds: 5, rows: 20_000, accepts: 20_000, history: 1_000_000, junk: 200_000, backlog: 300_000,
		memory: 200_000, seconds: 20, latencyRounds: 3, tuneRows: 8_000, patience: 10 * time.Minute,
	}
	shortScale = scale{
		rounds: 2, rows: 2_000, accepts: 2_000, history: 50_000, junk: 20_000, backlog: 20_000,
		memory: 20_000, seconds: 2, latencyRounds: 1, patience: time.Minute,
	}
)

// bench is one run of the command.
type bench struct {
	server    *server
	scale     scale
	growth10m bool
	profiles  map[string]profile
	peers     *regexp.Regexp // those that are wanted
	out       io.Writer      // progress, for people
	best      map[string]int // workers
}

func newBench(s *server, scale scale, out io.Writer) *bench {
	return &bench{server: s, scale: scale, profiles: profiles, peers: regexp.MustCompile(""), out: out, best: map[string]int{}}
}

func (b *bench) log(format string, args ...any) { fmt.Fprintf(b.out, format+"\n", args...) }

// drainWith is a drain by the named peer; the number of workers is yet to be set.
func (b *bench) drainWith(name string, rows, batch int, many bool) drain {
	p := b.profiles[name]
	how := settings{batch: max(batch, p.batch), many: many, poll: p.poll}
	if batch == 1 {
		how.batch = 1
	}
	return drain{bench: b, name: name, n: max(int(float64(rows)*p.share), 20), how: how}
}

// drainOf is drainWith as many workers as serve the peer best.
func (b *bench) drainOf(ctx context.Context, name string, rows, batch int, many bool) (drain, error) {
	d := b.drainWith(name, rows, batch, many)
	var err error
	d.how.workers, err = b.bestWorkers(ctx, name, d.how)
	return d, err
}

// bestWorkers finds, once, the number of workers at which a peer drains fastest.
func (b *bench) bestWorkers(ctx context.Context, name string, how settings) (int, error) {
	candidates := b.profiles[name].workers
	if len(candidates) == 1 || b.scale.tuneRows == 0 || !b.peers.MatchString(name) {
		return candidates[0], nil
	}
	key := fmt.Sprintf("%s/%d/%t", name, how.batch, how.many)
	if workers := b.best[key]; workers > 0 {
		return workers, nil
	}
	rows := b.scale.tuneRows
	if how.batch == 1 {
		rows /= 4
	}
	c := benchCase{name: "tune"}
	for _, workers := range candidates {
		how.workers = workers
		d := drain{bench: b, name: name, n: max(int(float64(rows)*b.profiles[name].share), 4*workers), how: how}
		c.contenders = append(c.contenders, d.contender())
	}
	results := measure(ctx, &c, 1, b.log)
	if err := problems(results); err != nil {
		return 0, err
	}
	text, top := "", 0.0
	for i, r := range results {
		rate := median(r.figures[perSecond])
		text += fmt.Sprintf("  %d workers %.0f/s", candidates[i], rate)
		if rate > top {
			top, b.best[key] = rate, candidates[i]
		}
	}
	kind := ""
	if how.many {
		kind = ", batch handler"
	}
	b.log("tuned %s, batch %d%s:%s: takes %d", name, how.batch, kind, text, b.best[key])
	return b.best[key], nil
}

// run measures the cases that match, and returns what it measured with
// the joined problems of those that were refused.
func (b *bench) run(ctx context.Context, cases *regexp.Regexp) (out []record, err error) {
	var errs []error
	began := time.Now()
	for _, c := range allCases(b) {
		if !cases.MatchString(c.name) {
			continue
		}
		if ctx.Err() != nil {
			errs = append(errs, context.Cause(ctx))
			break
		}
		contenders, err := c.build(ctx, b)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c.name, err))
			continue
		}
		c.contenders = slices.DeleteFunc(contenders, func(c contender) bool { return !b.peers.MatchString(c.peer) })
		if len(c.contenders) == 0 {
			continue
		}
		rounds := b.scale.rounds
		if c.rounds > 0 {
			rounds = min(rounds, c.rounds)
		}
		results := measure(ctx, c, rounds, b.log)
		found := records(results)
		errs = append(errs, problems(results))
		out = append(out, found...)
		b.log("%s: done after %s", c.name, time.Since(began).Round(time.Second))
	}
	if len(out) == 0 && len(errs) == 0 {
		errs = append(errs, errors.New("no case and peer matches: -list shows the cases"))
	}
	return out, errors.Join(errs...)
}
