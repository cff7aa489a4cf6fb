package inbox

import (
	"context"
	"errors"
	"testing"
)

func newCall(payloads ...string) *call {
	c := &call{done: make(chan struct{}), turn: make(chan struct{}, 1)}
	for _, payload := range payloads {
		c.rows = append(c.rows, row{payload: []byte(payload)})
	}
	return c
}

// A group takes what fits into one statement, in order; what does not waits.
func TestAGroupTakesWhatFits(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		first   *call
		waiting []*call
		want    int // calls in the group
	}{
		"alone":            {newCall("a"), nil, 1},
		"all":              {newCall("a"), []*call{newCall("b"), newCall("c")}, 3},
		"too many entries": {newCall("a"), []*call{newCall("b"), newCall("c", "d"), newCall("e")}, 2},
		"too many bytes":   {newCall("a"), []*call{newCall("b"), newCall("0123456789"), newCall("c")}, 2},
		"too large itself": {newCall("a", "b", "c", "d"), []*call{newCall("e")}, 1},
	} {
		g := &group{repo: &Repository{config: Config{MaxBatch: 3, MaxBatchBytes: 10}}, waiting: test.waiting}
		all := append([]*call{test.first}, test.waiting...)
		calls := g.take(test.first)
		if len(calls) != test.want || len(g.waiting) != len(all)-test.want {
			t.Errorf("%s: %d in the group and %d wait, want %d and %d", name, len(calls), len(g.waiting), test.want, len(all)-test.want)
			continue
		}
		for i, c := range append(calls, g.waiting...) {
			if c != all[i] {
				t.Errorf("%s: call %d is another one", name, i)
			}
		}
	}
}

// A call that gives up just when its turn has come passes the turn on.
func TestATurnIsPassedOn(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	leaving, next := newCall("a"), newCall("b")
	g := &group{running: 1, waiting: []*call{leaving, next}}
	g.next()
	if err := g.leave(ended, leaving); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	select {
	case <-next.turn:
	default:
		t.Fatal("the turn is lost: nobody would store the calls that wait")
	}
	if err := g.leave(ended, newCall("c")); !errors.Is(err, context.Canceled) || g.running != 1 {
		t.Errorf("a call without the turn has ended somebody else's: %v", err)
	}
	g.next()
	if g.running != 0 {
		t.Errorf("%d groups are said to be under way, none is", g.running)
	}
}
