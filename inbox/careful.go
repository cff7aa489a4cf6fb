package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// A message that kills its process leaves no error behind. While processors have
// reason to be careful (one of them has crashed a short while ago, or a message
// was started before and never came back), they start messages one at a time,
// after a committed note of the start. A crash is then the message's own. What
// settles the message takes the note away; so does a stop. After a crash it comes
// back a heartbeat later, so that the others are not behind it.

// errSuspect ends a claim that holds a message which was started before.
var errSuspect = errors.New("inbox: a claimed message may have killed a processor")

// isCareful reports that messages are to be started one at a time.
func (p *Processor) isCareful() bool { return time.Now().UnixNano() < p.careful.Load() }

// tryAlone is try for one message, with nobody else at work in this process.
func (p *Processor) tryAlone(s session, names []string) (progress, error) {
	select {
	case p.repo.alone <- struct{}{}:
		defer func() { <-p.repo.alone }()
	case <-s.stop.Done():
		return progress{}, nil
	}
	var c *Claimed
	var held []*Claimed
	err := p.repo.inTransaction(s.stop, txOptions{isolation: sql.LevelReadCommitted}, func(_ context.Context, tx querier) error {
		claimed, err := p.claim(s.work, tx, names, 1)
		if err != nil || len(claimed) == 0 {
			return err
		}
		var ready []*Claimed
		if ready, held, err = p.repo.inOrder(s.work, tx, claimed); err != nil || len(ready) == 0 {
			return err
		}
		if c = ready[0]; c.starts >= p.config.MaxCrashes {
			return nil // to be given up
		}
		return p.life().start(s.work, tx, c, p.config.Heartbeat)
	})
	switch {
	case err != nil:
		return progress{}, err
	case len(held) > 0:
		parked, err := p.park(s.stop, held)
		return progress{claimed: parked}, err
	case c == nil:
		return progress{}, nil
	case c.starts >= p.config.MaxCrashes:
		return progress{claimed: 1}, p.giveUp(s, c)
	}
	p.marks.reset()
	starts := c.starts + 1
	processed, err := p.single(s, c.ID, starts)
	if processed {
		return progress{claimed: 1, processed: 1}, nil
	}
	if undo := p.unstart(s.work, c.ID, starts); err == nil {
		err = undo
	}
	return progress{claimed: 1}, err
}

// unstart takes the note away unless the message was settled.
func (p *Processor) unstart(ctx context.Context, id int64, starts int) error {
	ctx, cancel := detached(ctx)
	defer cancel()
	return p.repo.inTransaction(ctx, txOptions{isolation: sql.LevelReadCommitted}, func(ctx context.Context, tx querier) error {
		return p.life().unstart(ctx, tx, id, starts)
	})
}

// giveUp ends a message that has killed its process too often.
func (p *Processor) giveUp(s session, c *Claimed) error {
	r := result{claimed: c, attempt: attempt{
		err: fmt.Errorf("inbox: worker died: the process ended %d times while this message was handled", c.starts),
	}}
	f := p.unchanged(c)
	f.err = p.describe(r.attempt.err)
	r.fate, r.failure = p.die(f)
	return p.record(s.work, &r)
}
