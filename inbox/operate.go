package inbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// target is a message that a verb has locked in the queue, if it is there.
type target struct {
	Info
	status    int
	discarded bool
	removed   bool   // no payload
	queued    bool   // not settled for good
	state     int    // of the queue row
	key       string // that the queue row holds up
}

// Retry lets a message run again at once. A dead one begins anew: no attempts,
// and its place in its ordering key. One that waits for its next attempt, or for
// its due time, is due now and keeps its attempts. The history of attempts and
// the last error stay.
//
// ErrNotFound; ErrNotRetryable for a message that is processed or discarded;
// ErrPayloadRemoved; ErrBusy while a handler runs it.
func (r *Repository) Retry(ctx context.Context, id int64) error {
	return r.verb(ctx, "retry", id, func(ctx context.Context, tx querier, t *target) error {
		switch {
		case !t.queued:
			return fmt.Errorf("%w: it is %s", ErrNotRetryable, t.condition())
		case t.removed:
			return ErrPayloadRemoved
		case t.state == stateDead:
			return r.revive(ctx, tx, []int64{id})
		}
		_, err := r.exec(ctx, tx, r.both(hurryQueued), id)
		return err
	})
}

// EditOptions are the settings of EditAndRetry.
type EditOptions struct {
	// Force accepts a payload that is not JSON for a name that is not
	// registered here. A registered name's codec always has to accept it.
	Force bool
}

// EditAndRetry gives a dead message another payload and lets it run again, as
// Retry does. The fingerprint stays that of the original: what the sender
// delivers again is still a duplicate.
//
// ErrNotFound; ErrNotRetryable for a message that is not dead; a *PayloadError;
// ErrBusy.
func (r *Repository) EditAndRetry(ctx context.Context, id int64, payload []byte, options EditOptions) error {
	if payload == nil {
		payload = []byte{}
	}
	return r.verb(ctx, "edit", id, func(ctx context.Context, tx querier, t *target) error {
		if !t.queued || t.state != stateDead {
			return fmt.Errorf("%w: it is %s, and only a dead message may be edited", ErrNotRetryable, t.condition())
		}
		if err := r.checkPayload(t.Name, payload, options); err != nil {
			return &PayloadError{Name: t.Name, Err: err}
		}
		if err := r.execCount(ctx, tx, 1, r.both(editPayload), payload, id); err != nil {
			return err
		}
		return r.revive(ctx, tx, []int64{id})
	})
}

// checkPayload says why a message of this name could not have the payload.
func (r *Repository) checkPayload(name string, payload []byte, options EditOptions) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("decoding panicked: %v", v)
		}
	}()
	if len(payload) > r.config.MaxPayload {
		return fmt.Errorf("%d bytes: %w of %d", len(payload), ErrPayloadTooLarge, r.config.MaxPayload)
	}
	if reg := r.names.forName(name); reg != nil {
		_, err := reg.decode(payload)
		return err
	}
	if !options.Force && !json.Valid(payload) {
		return errors.New("not JSON, and this program does not know the codec of the name")
	}
	return nil
}

// Discard gives a message up for good: it stays in the history as dead, is
// never run, and does not hold its ordering key up. It may be dead or still
// pending, but not in a handler's hands.
//
// ErrNotFound; ErrNotDiscardable for a message that is processed or discarded;
// ErrBusy while a handler runs it.
func (r *Repository) Discard(ctx context.Context, id int64) error {
	return r.verb(ctx, "discard", id, func(ctx context.Context, tx querier, t *target) error {
		if !t.queued {
			return fmt.Errorf("%w: it is %s", ErrNotDiscardable, t.condition())
		}
		if err := r.execCount(ctx, tx, 1, r.both(discardQueued), id); err != nil {
			return err
		}
		if t.key != "" {
			if _, err := r.store.unpark(ctx, tx, []string{t.key}, unparkAtOnce); err != nil {
				return err
			}
		}
		return r.execCount(ctx, tx, 1, r.both(discardMessage), id)
	})
}

// SkipKey lets the messages of an ordering key go on although one of them is
// dead: the dead ones stay, and hold nobody up any more. It returns how many
// dead ones there were. ErrNotFound when none holds the key up; ErrBusy.
func (r *Repository) SkipKey(ctx context.Context, key string) (skipped int64, err error) {
	if key == "" || checkIdentifier(key, r.config.MaxIdentifier, false) != nil {
		return 0, ErrNotFound
	}
	err = r.acting(ctx, func(ctx context.Context, tx querier) error {
		var ids []int64
		if err := r.scan(ctx, tx, &ids, r.both(skipDead), key); err != nil {
			return err
		}
		if len(ids) == 0 {
			return ErrNotFound
		}
		if err := r.execCount(ctx, tx, len(ids), r.both(skipQueued, ids...)); err != nil {
			return err
		}
		skipped = int64(len(ids))
		_, err := r.store.unpark(ctx, tx, []string{key}, unparkAtOnce)
		return err
	})
	if err != nil {
		return 0, r.acted("skip key", err)
	}
	r.audit(ctx, "skip-key", skipped, Info{OrderingKey: key})
	r.wake()
	return skipped, nil
}

// verb runs a change of one message, in a transaction of its own, with its queue
// row locked, and tells the observer after the commit.
func (r *Repository) verb(ctx context.Context, action string, id int64, change func(ctx context.Context, tx querier, t *target) error) error {
	var t *target
	err := r.acting(ctx, func(ctx context.Context, tx querier) (err error) {
		if t, err = r.lockTarget(ctx, tx, id); err != nil {
			return err
		}
		return change(ctx, tx, t)
	})
	if err != nil {
		return r.acted(action, err)
	}
	r.audit(ctx, action, 1, t.Info)
	r.wake()
	return nil
}

// audit tells the observer what an operator did.
func (r *Repository) audit(ctx context.Context, action string, count int64, message Info) {
	r.observe(ctx, r.config.Logger, Observation{
		Kind: SawAction, Action: action, Actor: actorOf(ctx), Count: count, Message: message,
	})
}

// lockTarget locks the queue row and then reads the message, in a statement of
// its own: the row may have been settled while we waited.
func (r *Repository) lockTarget(ctx context.Context, tx querier, id int64) (*target, error) {
	var queued []struct {
		ID          int64
		Name        string
		State       int
		OrderingKey string
	}
	if err := r.scan(ctx, tx, &queued, r.both(operateQueued), id); err != nil {
		return nil, err
	}
	var rows []struct {
		ID          int64
		Source      string
		MessageID   string
		Name        string
		OrderingKey string
		Status      int
		Discarded   bool
		Removed     bool
	}
	if err := r.scan(ctx, tx, &rows, r.both(operateMessage), id); err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, ErrNotFound
	}
	m := rows[0]
	t := &target{
		Info:      Info{ID: m.ID, Identity: Identity{m.Source, m.MessageID, m.Name}, OrderingKey: m.OrderingKey},
		status:    m.Status,
		discarded: m.Discarded,
		removed:   m.Removed,
	}
	if len(queued) > 0 {
		t.queued, t.state, t.key = true, queued[0].State, queued[0].OrderingKey
	}
	return t, nil
}

// condition is the status in a word.
func (t *target) condition() string {
	if t.discarded {
		return "discarded"
	}
	return kindOf(t.status).String()
}

// revive makes dead messages claimable, all of them or none.
func (r *Repository) revive(ctx context.Context, tx querier, ids []int64) error {
	if err := r.execCount(ctx, tx, len(ids), r.both(reviveQueued, ids...)); err != nil {
		return err
	}
	return r.execCount(ctx, tx, len(ids), r.both(reviveMessages, ids...))
}

// stateDead is the state of a queued message that was given up.
const stateDead = 2
