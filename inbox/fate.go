package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// fate is what becomes of a message after a failed attempt.
type fate uint8

const (
	retried     fate = iota + 1 // an attempt, comes back later
	died                        // an attempt, the last one
	postponed                   // not an attempt
	interrupted                 // not an attempt, counted apart and bounded
	released                    // nothing is recorded: claimable at once
)

// judge decides about a failed attempt.
func (p *Processor) judge(c *Claimed, a *attempt) (fate, failure) {
	policy := p.policy(c.Name)
	f := failure{Claimed: c, attempts: c.attempts, interruptions: c.interruptions}
	if a.stopped {
		return released, f
	}
	var postpone *postponeError
	if errors.As(a.err, &postpone) && !errors.As(a.err, new(*refusedError)) {
		f.delay = postpone.delay
		return postponed, f
	}
	if !a.timedOut && !a.leaked && !IsPermanent(a.err) && p.repo.dialect.handlerInterrupted(a.err) {
		return p.interrupt(f, a.err)
	}
	f.attempts++
	f.err = p.describe(a.err)
	if IsPermanent(a.err) || f.attempts >= policy.MaxAttempts {
		f.dead = true
		return died, f
	}
	f.delay = policy.Backoff.Delay(f.attempts)
	var after *retryAfterError
	if errors.As(a.err, &after) {
		f.delay = after.delay
	}
	return retried, f
}

// interrupt counts a run that was broken off by the database. After very many
// the message is dead, so that one which always breaks its connection ends.
func (p *Processor) interrupt(f failure, err error) (fate, failure) {
	f.interruptions++
	if f.interruptions >= p.config.MaxInterruptions {
		f.dead = true
		f.err = p.describe(fmt.Errorf("inbox: gave up after %d interrupted runs: %w", f.interruptions, err))
		return died, f
	}
	f.delay = interruptionBackoff.Delay(f.interruptions)
	return interrupted, f
}

var interruptionBackoff = Backoff{Base: 50 * time.Millisecond, Max: time.Minute}

// describe returns the text that is kept, and it is never empty.
func (p *Processor) describe(err error) string {
	text := errorText(err)
	if text == "" {
		return fmt.Sprintf("%T without a text", err)
	}
	return text
}

// report logs a fate after the commit that made it true.
func (p *Processor) report(ctx context.Context, kind fate, f failure, err error) {
	level := slog.LevelWarn
	text := "inbox: attempt failed"
	switch kind {
	case died:
		level, text = slog.LevelError, "inbox: message is dead"
	case postponed, released:
		level, text = slog.LevelDebug, "inbox: message comes back"
	case interrupted:
		level, text = slog.LevelInfo, "inbox: run was interrupted"
	}
	attrs := []slog.Attr{
		slog.Int64("id", f.ID),
		slog.String("name", f.Name),
		slog.String("source", f.Source),
		slog.String("message_id", f.MessageID),
		slog.Int("attempts", f.attempts),
		slog.Duration("delay", f.delay),
	}
	if err != nil {
		attrs = append(attrs, slog.String("error", errorText(err)))
	}
	var panicked *panicError
	if errors.As(err, &panicked) {
		attrs = append(attrs, slog.String("stack", string(panicked.stack)))
	}
	p.log.LogAttrs(ctx, level, text, attrs...)
}
