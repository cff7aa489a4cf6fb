package wminbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Reason says why a message can never be stored.
type Reason string

// The reasons.
const (
	ReasonNoID         Reason = "no message id"
	ReasonNoName       Reason = "no message name"
	ReasonUnregistered Reason = "name not registered"
	ReasonUndecodable  Reason = "payload cannot be decoded"
	ReasonInvalid      Reason = "entry refused"
	ReasonPanic        Reason = "panic while reading the message"
)

// RejectError is why a message is rejected. Its text is safe to log: Err, which a
// decoder may have put bytes of the payload into, is shown only for
// ReasonInvalid, whose error never shows a value.
type RejectError struct {
	Reason Reason
	Err    error // may be nil
}

// Error shows the reason.
func (e *RejectError) Error() string {
	if e.Err != nil && e.Reason == ReasonInvalid && !dataException(e.Err) {
		return fmt.Sprintf("wminbox: rejected: %s: %v", e.Reason, e.Err)
	}
	return fmt.Sprintf("wminbox: rejected: %s", e.Reason)
}

// Unwrap returns the cause.
func (e *RejectError) Unwrap() error { return e.Err }

// detail is everything that is known, for places that hold the payload anyway.
func (e *RejectError) detail() string {
	if e.Err == nil {
		return string(e.Reason)
	}
	return fmt.Sprintf("%s: %v", e.Reason, e.Err)
}

// Rejecter is a policy for messages that can never be stored. When Reject returns
// nil the message is acked, so it must be safe by then. An error means nack: the
// message comes again. *Park, *Poison and Nack are policies.
type Rejecter interface {
	Reject(ctx context.Context, msg *message.Message, reason *RejectError) error
}

// Nack is the policy to nack, after a pause: the broker delivers the message again
// and again until its own limit or dead-letter rule applies. Without one, such a
// message blocks an ordered subscription for ever.
type Nack struct{}

// Reject returns the reason.
func (Nack) Reject(_ context.Context, _ *message.Message, reason *RejectError) error { return reason }

// The metadata keys under which Poison says why, where and to whom a message came:
// those of Watermill's PoisonQueue middleware, whose constants would bring all of
// its dependencies along.
const (
	PoisonReasonKey     = "reason_poisoned"
	PoisonTopicKey      = "topic_poisoned"
	PoisonHandlerKey    = "handler_poisoned"
	PoisonSubscriberKey = "subscriber_poisoned"
)

// Poison is the policy to publish rejected messages to a topic, as Watermill's
// PoisonQueue middleware does. When publishing fails the message is nacked.
type Poison struct {
	publisher message.Publisher
	topic     string
}

// NewPoison returns a policy that publishes to topic. The publisher has to return
// only when the broker has the message.
func NewPoison(publisher message.Publisher, topic string) (*Poison, error) {
	if publisher == nil || topic == "" {
		return nil, errors.New("wminbox: NewPoison needs a publisher and a topic")
	}
	return &Poison{publisher: publisher, topic: topic}, nil
}

// Reject publishes a copy of the message with the reason in its metadata.
func (p *Poison) Reject(ctx context.Context, msg *message.Message, reason *RejectError) error {
	poisoned := msg.Copy()
	poisoned.SetContext(ctx)
	poisoned.Metadata.Set(PoisonReasonKey, clean(reason.detail(), maxDetail))
	poisoned.Metadata.Set(PoisonTopicKey, message.SubscribeTopicFromCtx(ctx))
	poisoned.Metadata.Set(PoisonHandlerKey, message.HandlerNameFromCtx(ctx))
	poisoned.Metadata.Set(PoisonSubscriberKey, message.SubscriberNameFromCtx(ctx))
	if err := p.publisher.Publish(p.topic, poisoned); err != nil {
		return fmt.Errorf("publish to the poison topic: %w", err)
	}
	return nil
}
