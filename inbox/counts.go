package inbox

import "sync"

// counts is what a processor has done since the last time it wrote that down.
type counts struct {
	mu     sync.Mutex
	byName map[string]tally
}

type tally struct{ processed, failed, died int64 }

// count adds an observation.
func (p *Processor) count(name string, kind ObservationKind) {
	p.counts.mu.Lock()
	defer p.counts.mu.Unlock()
	t := p.counts.byName[name]
	switch kind {
	case SawProcessed:
		t.processed++
	case SawFailed:
		t.failed++
	case SawDead:
		t.died++
	default:
		return
	}
	if p.counts.byName == nil {
		p.counts.byName = map[string]tally{}
	}
	p.counts.byName[name] = t
}

// giveBack adds what could not be written down.
func (c *counts) giveBack(byName map[string]tally) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, t := range byName {
		if c.byName == nil {
			c.byName = map[string]tally{}
		}
		sum := c.byName[name]
		c.byName[name] = tally{sum.processed + t.processed, sum.failed + t.failed, sum.died + t.died}
	}
}

// take returns what has been counted, and begins anew.
func (c *counts) take() map[string]tally {
	c.mu.Lock()
	defer c.mu.Unlock()
	byName := c.byName
	c.byName = nil
	return byName
}
