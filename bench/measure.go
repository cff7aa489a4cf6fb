package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/pprof"
	"slices"
)

// benchCase compares contenders.
type benchCase struct {
	name  string
	about string
	// limit is the peer that the others are compared with; empty: the baseline
	// where there is one, else nobody.
	limit string
	// rounds, if set, is the most that are run.
	rounds int
	// build returns the contenders; it may have to measure which settings are best.
	build      func(ctx context.Context, b *bench) ([]contender, error)
	contenders []contender
}

// contender is one side of a comparison.
type contender struct {
	peer string
	// baseline marks the side that only gives the others something to be compared with.
	baseline bool
	n        int // messages in a round
	note     string
	open     func(ctx context.Context) (trial, error)
}

// trial is a contender at work.
type trial struct {
	// prepare, if there, does what is not measured, before each round.
	prepare func(ctx context.Context) error
	// run is one round; prepare has run before it.
	run   func(ctx context.Context) ([]figure, error)
	close func(ctx context.Context) error
}

// figure is one measured value.
type figure struct {
	unit  string
	value float64
}

// result is what came of a contender.
type result struct {
	benchCase *benchCase
	contender *contender
	figures   map[string][]float64 // unit -> one value a round
	units     []string             // in the order they were measured
	err       error                // why there are none
}

func (r *result) add(figures []figure) {
	for _, f := range figures {
		if !slices.Contains(r.units, f.unit) {
			r.units = append(r.units, f.unit)
		}
		r.figures[f.unit] = append(r.figures[f.unit], f.value)
	}
}

// refuse drops what was measured: a contender that got one round wrong gets no
// figure at all.
func (r *result) refuse(err error) {
	r.err, r.figures, r.units = err, map[string][]float64{}, nil
}

// measure runs the rounds of a case, all contenders in turn (A B C A B C). A
// contender that fails is left out from then on.
func measure(ctx context.Context, c *benchCase, rounds int, log func(string, ...any)) []*result {
	results := make([]*result, len(c.contenders))
	trials := make([]trial, len(c.contenders))
	for i := range c.contenders {
		results[i] = &result{benchCase: c, contender: &c.contenders[i], figures: map[string][]float64{}}
		var err error
		if trials[i], err = c.contenders[i].open(ctx); err != nil {
			results[i].refuse(err)
			continue
		}
		if trials[i].close != nil {
			defer func() {
				if err := trials[i].close(context.WithoutCancel(ctx)); err != nil {
					log("%s, %s: close: %v", c.name, c.contenders[i].peer, err)
				}
			}()
		}
	}
	for round := range rounds {
		for i, r := range results {
			if r.err != nil {
				continue
			}
			figures, err := oneRound(ctx, c, r.contender.peer, &trials[i])
			if err != nil {
				r.refuse(fmt.Errorf("round %d: %w", round+1, err))
				log("%s, %s: %v", c.name, r.contender.peer, r.err)
				continue
			}
			r.add(figures)
		}
	}
	return results
}

// oneRound labels the goroutines of what is measured, so that a profile can be
// reduced to them: go tool pprof -tagfocus=letterbox.
func oneRound(ctx context.Context, c *benchCase, peer string, t *trial) (figures []figure, err error) {
	if t.prepare != nil {
		if err := t.prepare(ctx); err != nil {
			return nil, fmt.Errorf("prepare: %w", err)
		}
	}
	runtime.GC()
	pprof.Do(ctx, pprof.Labels("case", c.name, "peer", peer), func(ctx context.Context) {
		figures, err = t.run(ctx)
	})
	return figures, err
}

// record is a line of results, for people and programs.
type record struct {
	Case  string  `json:"case"`
	Peer  string  `json:"peer"`
	N     int     `json:"n"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// RatioToLimit is Value by that of the limit, both medians of this run: above
	// 1 is more. 0: there is none.
	RatioToLimit float64 `json:"ratio_to_limit"`
	// Baseline is the median without what a growth case adds.
	Baseline float64 `json:"baseline,omitempty"`

	low, high float64
	note      string
}

// records turns the results of one case into lines.
func records(results []*result) (out []record) {
	for _, r := range results {
		if r.err != nil || r.contender.baseline {
			continue
		}
		for _, unit := range r.units {
			values := r.figures[unit]
			line := record{
				Case: r.benchCase.name, Peer: r.contender.peer, N: r.contender.n, Unit: unit,
				Value: median(values), low: slices.Min(values), high: slices.Max(values), note: r.contender.note,
			}
			if base := find(results, r.contender.peer, true); base != nil {
				line.Baseline = median(base.figures[unit])
			}
			limit := line.Baseline
			if peer := r.benchCase.limit; peer != "" {
				limit = 0
				if found := find(results, peer, false); found != nil {
					limit = median(found.figures[unit])
				}
			}
			if limit > 0 {
				line.RatioToLimit = line.Value / limit
			}
			out = append(out, line)
		}
	}
	return out
}

// find returns the result of a peer, if it has figures.
func find(results []*result, peer string, baseline bool) *result {
	i := slices.IndexFunc(results, func(r *result) bool {
		return r.contender.peer == peer && r.contender.baseline == baseline && r.err == nil
	})
	if i < 0 {
		return nil
	}
	return results[i]
}

// problems joins why contenders have no figures.
func problems(results []*result) error {
	var errs []error
	for _, r := range results {
		if r.err != nil {
			errs = append(errs, fmt.Errorf("%s, %s: %w", r.benchCase.name, r.contender.peer, r.err))
		}
	}
	return errors.Join(errs...)
}

// median returns 0 for no values.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.SortedFunc(slices.Values(values), cmp.Compare[float64])
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}
