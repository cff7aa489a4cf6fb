package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

// Observer sees what happens in an inbox. It is called after the commit that
// made an observation true, and never for work that was rolled back. In a
// transaction of the caller's own, that is when the caller says Committed.
//
// Calls come from many goroutines. They should be quick: a worker waits for
// them. A panic is caught and logged.
type Observer interface {
	// Start is called before a handler runs; the context it returns is the
	// handler's, and comes back with the observation of what became of the run.
	// There is none if the run was rolled back. A batch handler gets several
	// messages at once.
	Start(ctx context.Context, messages []Info) context.Context
	// Observe is called for each observation.
	Observe(ctx context.Context, o Observation)
}

// ObservationKind is what an Observer saw.
type ObservationKind uint8

const (
	SawStored      ObservationKind = iota + 1 // a new message was accepted
	SawDuplicate                              // a repeat was accepted
	SawMismatch                               // a repeat had another body
	SawClaimed                                // a claim found Count messages in Duration
	SawProcessed                              // the effect of Message is committed
	SawFailed                                 // an attempt failed; the next is after Delay
	SawPostponed                              // a handler asked for Delay; not an attempt
	SawInterrupted                            // the database broke a run off; not an attempt
	SawDead                                   // Message was given up
	SawSwept                                  // Count messages (or payloads: see Action) were removed
	SawAction                                 // an operator's Action changed Count messages
)

// String returns the name in lower case: "stored", "dead", ...
func (k ObservationKind) String() string {
	if names := []string{
		"stored", "duplicate", "mismatch", "claimed", "processed", "failed", "postponed",
		"interrupted", "dead", "swept", "action",
	}; k > 0 && int(k) <= len(names) {
		return names[k-1]
	}
	return fmt.Sprintf("ObservationKind(%d)", uint8(k))
}

// Observation is one thing that happened. Fields that do not apply are zero.
type Observation struct {
	Kind ObservationKind
	// Message is the message it happened to. Of an accepted one it holds the
	// identity, ordering key and metadata, and the ID when it was stored.
	Message Info
	// Inline is true for messages of HandleOnce.
	Inline bool
	// Began and Duration are those of the handler run, by this process's clock.
	Began    time.Time
	Duration time.Duration
	// Err is why the run failed.
	Err error
	// Delay is how long it is until the next run.
	Delay time.Duration
	// Count is how many messages a claim, a sweep or an action covered.
	Count int64
	// Action and Actor are what an operator did, and who: see WithActor.
	Action string
	Actor  string
}

type actorKey struct{}

// WithActor names the person or program on whose behalf operator verbs called
// with the returned context act: observers get it, and Pause stores it.
func WithActor(ctx context.Context, actor string) context.Context {
	return context.WithValue(ctx, actorKey{}, actor)
}

// actorOf returns the actor of ctx, or "".
func actorOf(ctx context.Context) string {
	actor, _ := ctx.Value(actorKey{}).(string)
	return actor
}

// observe hands an observation to the log and to the observer of the config.
func (r *Repository) observe(ctx context.Context, log *slog.Logger, o Observation) {
	logObservation(ctx, log, o)
	if r.config.Observer == nil {
		return
	}
	defer r.observerPanicked(ctx)
	r.config.Observer.Observe(ctx, o)
}

// started lets the observer into the context of a handler.
func (r *Repository) started(ctx context.Context, messages []Info) (out context.Context) {
	if r.config.Observer == nil {
		return ctx
	}
	out = ctx // should it panic
	defer r.observerPanicked(ctx)
	if c := r.config.Observer.Start(ctx, messages); c != nil {
		out = c
	}
	return out
}

func (r *Repository) observerPanicked(ctx context.Context) {
	if v := recover(); v != nil {
		r.config.Logger.ErrorContext(ctx, "inbox: the observer panicked", "error", fmt.Sprint(v), "stack", string(debug.Stack()))
	}
}

// LogObserver returns an Observer that writes to log: deaths as errors, failed
// attempts and mismatches as warnings, sweeps and the acts of operators as
// information, the rest for debugging. Payloads and metadata are never logged.
// Repositories and processors log the same to their Logger without it.
func LogObserver(log *slog.Logger) Observer { return logObserver{log} }

type logObserver struct{ log *slog.Logger }

func (l logObserver) Start(ctx context.Context, _ []Info) context.Context { return ctx }
func (l logObserver) Observe(ctx context.Context, o Observation)          { logObservation(ctx, l.log, o) }

func logObservation(ctx context.Context, log *slog.Logger, o Observation) {
	level, text := slog.LevelDebug, "inbox: "+o.Kind.String()
	switch o.Kind {
	case SawDead:
		level, text = slog.LevelError, "inbox: message is dead"
	case SawFailed:
		level, text = slog.LevelWarn, "inbox: attempt failed"
	case SawMismatch:
		level, text = slog.LevelWarn, "inbox: a repeat has another body than the stored message"
	case SawInterrupted:
		level, text = slog.LevelInfo, "inbox: run was interrupted"
	case SawPostponed:
		text = "inbox: message comes back"
	case SawSwept:
		level = slog.LevelInfo
	case SawAction:
		level, text = slog.LevelInfo, "inbox: an operator acted"
	}
	if !log.Enabled(ctx, level) {
		return
	}
	var attrs []slog.Attr
	if o.Message.Name != "" {
		attrs = append(attrs,
			slog.Int64("id", o.Message.ID), slog.String("name", o.Message.Name),
			slog.String("source", o.Message.Source), slog.String("message_id", o.Message.MessageID))
	}
	if o.Message.Attempt > 0 {
		attrs = append(attrs, slog.Int("attempt", o.Message.Attempt), slog.Duration("duration", o.Duration))
	}
	if o.Delay > 0 {
		attrs = append(attrs, slog.Duration("delay", o.Delay))
	}
	if o.Action != "" {
		attrs = append(attrs, slog.String("action", o.Action), slog.String("actor", o.Actor))
	}
	if o.Count > 0 {
		attrs = append(attrs, slog.Int64("count", o.Count))
	}
	if o.Err != nil {
		attrs = append(attrs, slog.String("error", errorText(o.Err)))
	}
	var panicked *panicError
	if errors.As(o.Err, &panicked) {
		attrs = append(attrs, slog.String("stack", string(panicked.stack)))
	}
	log.LogAttrs(ctx, level, text, attrs...)
}
