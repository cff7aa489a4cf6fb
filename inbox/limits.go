package inbox

import (
	"slices"
	"sync/atomic"
)

// limits bounds how many batches hold messages of a name at once.
type limits []*limit

type limit struct {
	names   []string
	permits chan struct{}
	starved atomic.Bool // somebody went without since the last release
	wake    chan struct{}
}

func (l *limits) add(names []string, n int, wake chan struct{}) {
	*l = append(*l, &limit{names: names, permits: make(chan struct{}, n), wake: wake})
}

// take reports false only after it has left word: a permit that comes back
// later wakes somebody.
func (l *limit) take() bool {
	for range 2 {
		select {
		case l.permits <- struct{}{}:
			return true
		default:
			l.starved.Store(true)
		}
	}
	return false
}

// acquire takes a permit for every limited name that has one left, and returns
// the names that may be claimed. release gives the permits back that the claimed
// messages do not need, and with nil all that are left.
func (l limits) acquire(names []string) (allowed []string, release func(claimed []*Claimed)) {
	if len(l) == 0 {
		return names, func([]*Claimed) {}
	}
	var held []*limit
	for _, limit := range l {
		if limit.take() {
			held = append(held, limit)
		} else {
			names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(limit.names, name) })
		}
	}
	return names, func(claimed []*Claimed) {
		held = slices.DeleteFunc(held, func(limit *limit) bool {
			if slices.ContainsFunc(claimed, func(c *Claimed) bool { return slices.Contains(limit.names, c.Name) }) {
				return false
			}
			<-limit.permits
			if limit.starved.Swap(false) {
				signal(limit.wake)
			}
			return true
		})
	}
}
