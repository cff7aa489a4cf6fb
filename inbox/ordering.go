package inbox

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"time"
)

// The messages of an ordering key are processed one after another, in the order
// of their ids. Two things see to that. A lock per key, which the claim tries
// and the transaction holds to its end, keeps everybody else out. And under that
// lock, in a statement of its own, the claim looks for an earlier unfinished
// message: one that waits, is dead, or became visible late.
//
// What has to wait would stand in the way of every further claim. It is parked:
// taken out of the claim's index until the earlier messages have left. Parking
// and unparking exclude each other by a second lock per key, which is held for
// moments only; a parked message therefore has an earlier one that will unpark
// it. An audit makes good what went around these rules.

// errHeld ends a claim of which no message may start.
var errHeld = errors.New("inbox: all claimed messages wait for earlier ones of their keys")

// heldAgain is how soon a claim looks again for messages whose key was busy for
// no visible reason: its transaction was just about to end.
const heldAgain = 50 * time.Millisecond

// inOrder tells the claimed messages that may start, in an order they may run
// in, from those that are held up by their ordering key.
func (r *Repository) inOrder(ctx context.Context, q querier, claimed []*Claimed) (ready, held []*Claimed, err error) {
	if !slices.ContainsFunc(claimed, func(c *Claimed) bool { return c.OrderingKey != "" }) {
		return claimed, nil, nil
	}
	earliest, err := r.earliestOf(ctx, q, claimed)
	if err != nil {
		return nil, nil, err
	}
	for _, c := range claimed {
		first, other := earliest[c.OrderingKey]
		if c.OrderingKey == "" || !c.busy && (!other || c.ID < first) {
			ready = append(ready, c)
		} else {
			held = append(held, c)
		}
	}
	sortKeys(ready)
	return ready, held, nil
}

// earliestOf finds the first unfinished message, other than these, of each
// ordering key whose lock is ours.
func (r *Repository) earliestOf(ctx context.Context, q querier, claimed []*Claimed) (map[string]int64, error) {
	var keys []string
	var ids []int64
	for _, c := range claimed {
		if c.OrderingKey != "" && !c.busy {
			keys, ids = append(keys, c.OrderingKey), append(ids, c.ID)
		}
	}
	if len(keys) == 0 {
		return nil, nil
	}
	return r.store.earliest(ctx, q, distinct(keys), ids)
}

func distinct(keys []string) []string {
	slices.Sort(keys)
	return slices.Compact(keys)
}

// sortKeys brings the messages of each key into the order they were accepted
// in; a retry or a due time may have changed it. All others stay in their places.
func sortKeys(claimed []*Claimed) {
	places := map[string][]int{}
	for i, c := range claimed {
		if c.OrderingKey != "" {
			places[c.OrderingKey] = append(places[c.OrderingKey], i)
		}
	}
	for _, at := range places {
		if len(at) == 1 {
			continue
		}
		sorted := make([]*Claimed, len(at))
		for i, place := range at {
			sorted[i] = claimed[place]
		}
		slices.SortFunc(sorted, func(a, b *Claimed) int { return cmp.Compare(a.ID, b.ID) })
		for i, place := range at {
			claimed[place] = sorted[i]
		}
	}
}

// mayStart reports whether a message that is claimed already may still start:
// an earlier one of its key may have failed since.
func (r *Repository) mayStart(ctx context.Context, q querier, c *Claimed) (bool, error) {
	ready, _, err := r.inOrder(ctx, q, []*Claimed{c})
	return len(ready) > 0, err
}

// firstOfKeys claims what holds others up, where it is due as well: it may be
// due later than they are, and behind the limit of their claim.
func (r *Repository) firstOfKeys(ctx context.Context, q querier, marks []mark, held []*Claimed, limit int) (ready []*Claimed, err error) {
	earliest, err := r.earliestOf(ctx, q, held)
	if err != nil || len(earliest) == 0 {
		return nil, err
	}
	paused, err := r.paused(ctx, q)
	if err != nil {
		return nil, err
	}
	for _, id := range slices.Sorted(maps.Values(earliest)) {
		c, err := r.store.claimOne(ctx, q, id, 0)
		switch {
		case err != nil:
			return nil, err
		case c == nil, c.busy,
			slices.ContainsFunc(paused, func(p PausedName) bool { return p.Name == c.Name }),
			!slices.ContainsFunc(marks, func(m mark) bool { return m.name == c.Name }):
			continue
		}
		if ready = append(ready, c); len(ready) == limit {
			break
		}
	}
	return ready, nil
}

// oneKey reports that all messages have the same ordering key: then there is
// nothing to do for another worker.
func oneKey(claimed []*Claimed) bool {
	return claimed[0].OrderingKey != "" && !slices.ContainsFunc(claimed, func(c *Claimed) bool {
		return c.OrderingKey != claimed[0].OrderingKey
	})
}

// inTheWay returns the messages of a claim that have to be parked. Where a few
// only met a key that is at work just now, the next claim can have them.
func (p *Processor) inTheWay(b *batch) (held []*Claimed) {
	var busy []*Claimed
	var again []mark
	for _, c := range b.held {
		if c.busy {
			busy, again = append(busy, c), append(again, mark{c.Name, c.due, c.ID})
		} else {
			held = append(held, c)
		}
	}
	if len(busy) > len(b.claimed) {
		return b.held
	}
	p.marks.lower(again)
	return held
}

// park takes messages that are held up, and those behind them, out of the
// claim. It returns how many.
func (p *Processor) park(ctx context.Context, held []*Claimed) (int, error) {
	from := map[string]int64{}
	for _, c := range held {
		if first, ok := from[c.OrderingKey]; !ok || c.ID < first {
			from[c.OrderingKey] = c.ID
		}
	}
	var parked []int64
	err := p.repo.inTransaction(ctx, txOptions{isolation: sql.LevelReadCommitted}, func(ctx context.Context, tx querier) (err error) {
		parked, err = p.repo.store.park(ctx, tx, from)
		return err
	})
	if err != nil {
		return 0, err
	}
	left := slices.ContainsFunc(held, func(c *Claimed) bool { return !slices.Contains(parked, c.ID) })
	if left {
		p.wakeAfter(heldAgain)
	}
	return len(parked), nil
}

// settle records what became of messages, and lets those go on that were parked
// behind them. What it returns is to be given to resume after the commit.
func (p *Processor) settle(ctx context.Context, tx querier, done []*Claimed, failures []failure) (u unparked, err error) {
	if len(done) > 0 {
		if err := p.repo.store.processed(ctx, tx, done); err != nil {
			return u, err
		}
	}
	if len(failures) > 0 {
		if err := p.repo.store.failed(ctx, tx, p.id, failures); err != nil {
			return u, err
		}
	}
	var keys []string
	for _, c := range done {
		if c.OrderingKey != "" {
			keys = append(keys, c.OrderingKey)
		}
	}
	for _, f := range failures {
		if f.OrderingKey != "" && f.leaves {
			keys = append(keys, f.OrderingKey)
		}
	}
	if len(keys) == 0 {
		return u, nil
	}
	keys = distinct(keys)
	// As many as a batch takes, so that others do not have to park them again.
	return p.repo.store.unpark(ctx, tx, keys, max(p.config.BatchSize/len(keys), 1))
}
