package wminbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
)

// Accepter stores entries and commits them before it returns. *inbox.Repository
// is one.
type Accepter interface {
	Accept(ctx context.Context, entries []inbox.Entry) ([]inbox.Outcome, error)
}

// Gate says whether the inbox has as much unfinished work as it should have, and
// when to ask again. It is asked before every message, so the answer must be
// cheap.
type Gate interface {
	Saturated(ctx context.Context) (saturated bool, retryAfter time.Duration, err error)
}

// Observer is told what became of each delivery. The calls come from the
// goroutines of the router and must not block; a panic in one is logged.
type Observer interface {
	// Accepted is called after the commit, before the ack.
	Accepted(ctx context.Context, outcome inbox.Outcome)
	// Rejected is called when the reject policy has taken the message.
	Rejected(ctx context.Context, reason *RejectError)
	// Nacked is called for a delivery that is about to be nacked.
	Nacked(ctx context.Context, cause error)
}

// Config holds the settings of a handler. Reject or DB is required; everything
// else has a default.
type Config struct {
	// IDs finds the message id: the first extractor that has one wins.
	// Default: CloudEvents, StandardWebhooks, NATSMsgID, AMQPMessageID, UUID.
	IDs []IDExtractor
	// Names finds the message name in the same way.
	// Default: MetadataName("name"), CloudEventsType.
	Names []NameExtractor
	// Source is the inbox source of ids that bring none of their own. Default "".
	Source string
	// OrderingKey gives the entry's ordering key. Default: none.
	OrderingKey func(*message.Message) string
	// Metadata lists the keys that are stored with the entry, compared without
	// regard to case and stored as they are spelt here. The trace context is
	// stored anyway. Default: none.
	Metadata []string
	// Decode, when set, decodes each payload before it is stored, and rejects
	// what cannot be decoded. Default: stored unseen; a bad payload dies in the
	// processor.
	Decode *inbox.NameMap

	// DB is where rejected messages are parked when Reject is nil, in the table
	// of NewPark(DB, ParkConfig{}), which has to be migrated.
	DB *bun.DB
	// Reject is what happens to a message that can never be stored.
	// Default: a Park on DB.
	Reject Rejecter

	// Gate makes the handler wait while the inbox is saturated. Default: none.
	Gate Gate
	// GateWait is the longest wait for the gate; then the message is nacked.
	// Keep it below the time the broker waits for an ack. Default 20 s.
	GateWait time.Duration
	// Timeout is how long storing one message may take. Keep it below the time
	// the broker waits for an ack. Default 10 s.
	Timeout time.Duration
	// PauseBase and PauseMax bound the pause before a nack: the first is about
	// PauseBase, each further one about twice as long, up to PauseMax.
	// Default 100 ms and 5 s. Negative PauseBase: no pause, for subscribers that
	// pace themselves.
	PauseBase, PauseMax time.Duration

	// Observer is told what became of each delivery. Default: nobody.
	Observer Observer
	// Logger receives rejects and mismatches, without payloads. Default: discard.
	Logger *slog.Logger
}

func (c *Config) setDefaults() {
	if c.IDs == nil {
		c.IDs = []IDExtractor{CloudEvents, StandardWebhooks, NATSMsgID, AMQPMessageID, UUID}
	}
	if c.Names == nil {
		c.Names = []NameExtractor{MetadataName("name"), CloudEventsType}
	}
	for _, d := range []struct {
		value    *time.Duration
		fallback time.Duration
	}{
		{&c.GateWait, 20 * time.Second},
		{&c.Timeout, 10 * time.Second},
		{&c.PauseBase, 100 * time.Millisecond},
		{&c.PauseMax, max(5*time.Second, c.PauseBase)},
	} {
		if *d.value == 0 {
			*d.value = d.fallback
		}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// validate joins every problem, and sets up the default reject policy.
func (c *Config) validate() error {
	var problems []error
	report := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("wminbox: config: "+format, args...))
	}
	if len(c.IDs) == 0 {
		report("IDs: empty: every message would be rejected")
	}
	for i, extractor := range c.IDs {
		if extractor == nil {
			report("IDs: %d is nil", i)
		}
	}
	if len(c.Names) == 0 {
		report("Names: empty: every message would be rejected")
	}
	for i, extractor := range c.Names {
		if extractor == nil {
			report("Names: %d is nil", i)
		}
	}
	if c.GateWait < 0 || c.Timeout < 0 || c.PauseMax < 0 {
		report("GateWait, Timeout and PauseMax must not be negative")
	}
	switch {
	case c.Reject != nil:
	case c.DB == nil:
		report("Reject or DB is required: a message that can never be stored has to go somewhere")
	default:
		park, err := NewPark(c.DB, ParkConfig{})
		if err != nil {
			problems = append(problems, err)
		}
		c.Reject = park
	}
	return errors.Join(problems...)
}
