package wminbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/letterbox-go/letterbox/inbox"
)

var errSaturated = errors.New("wminbox: the inbox has too much unfinished work")

// NewHandler returns a handler for a Watermill router that stores each message
// through accepter, which is an *inbox.Repository. A config that cannot work is
// an error that names every problem.
//
// The handler returns nil, and the router acks, when the message is committed or
// the reject policy has taken it. It returns an error, and the router nacks, for
// everything else.
func NewHandler(accepter Accepter, config Config) (message.NoPublishHandlerFunc, error) {
	if accepter == nil {
		return nil, errors.New("wminbox: NewHandler needs a repository")
	}
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	h := &handler{
		config:   config,
		accepter: accepter,
		faults:   pacer{base: config.PauseBase, max: config.PauseMax},
		rejects:  pacer{base: config.PauseBase, max: config.PauseMax},
	}
	return h.handle, nil
}

type handler struct {
	config   Config
	accepter Accepter
	faults   pacer // transient errors of the database
	rejects  pacer // rejects that the policy nacks
}

// handle settles one delivery. Whatever way it is left, the message is acked or
// nacked afterwards: by the router when it returns, here when it does not.
func (h *handler) handle(msg *message.Message) error {
	returned := false
	defer func() {
		if !returned { // runtime.Goexit: the router would do nothing at all
			msg.Nack()
		}
	}()
	err := h.recovered(msg)
	if err != nil {
		h.observe(msg.Context(), func(o Observer) { o.Nacked(msg.Context(), err) })
	}
	returned = true
	return err
}

// recovered turns a panic into a transient error: of what the application
// supplies, only extractors and decoders depend on the message alone, and those
// have a recover of their own.
func (h *handler) recovered(msg *message.Message) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = h.pause(msg.Context(), &h.faults, fmt.Errorf("wminbox: panic: %v", r))
		}
	}()
	return h.deliver(msg)
}

func (h *handler) deliver(msg *message.Message) error {
	ctx := msg.Context()
	entry, reason := h.entry(msg)
	if reason != nil {
		return h.reject(msg, reason)
	}
	if err := h.waitForGate(ctx); err != nil {
		return err
	}
	outcome, err := h.accept(ctx, entry)
	if reason := permanent(err); reason != nil {
		return h.reject(msg, reason)
	}
	if err != nil {
		return h.pause(ctx, &h.faults, fmt.Errorf("wminbox: accept: %w", err))
	}
	h.faults.succeeded()
	if outcome.Kind == inbox.Mismatch {
		h.config.Logger.WarnContext(ctx, "wminbox: a message arrived again with another body; the first one stands",
			"source", outcome.Identity.Source, "message_id", outcome.Identity.MessageID, "name", outcome.Identity.Name)
	}
	h.observe(ctx, func(o Observer) { o.Accepted(ctx, outcome) })
	return nil
}

func (h *handler) accept(ctx context.Context, entry inbox.Entry) (inbox.Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, h.config.Timeout)
	defer cancel()
	outcomes, err := h.accepter.Accept(ctx, []inbox.Entry{entry})
	if err != nil {
		return inbox.Outcome{}, err
	}
	if len(outcomes) != 1 {
		return inbox.Outcome{}, fmt.Errorf("%d outcomes for one entry", len(outcomes))
	}
	return outcomes[0], nil
}

// entry maps the message. What the application supplies runs under a recover: a
// panic over foreign bytes would come back with every redelivery.
func (h *handler) entry(msg *message.Message) (entry inbox.Entry, reason *RejectError) {
	defer func() {
		if r := recover(); r != nil {
			reason = &RejectError{Reason: ReasonPanic, Err: fmt.Errorf("panic: %v", r)}
		}
	}()
	id, ok := h.id(msg)
	if !ok {
		return entry, &RejectError{Reason: ReasonNoID}
	}
	name, ok := h.name(msg)
	if !ok {
		return entry, &RejectError{Reason: ReasonNoName}
	}
	if h.config.Decode != nil {
		if _, err := h.config.Decode.Decode(name, msg.Payload); errors.Is(err, inbox.ErrUnregistered) {
			return entry, &RejectError{Reason: ReasonUnregistered, Err: inbox.ErrUnregistered}
		} else if err != nil {
			return entry, &RejectError{Reason: ReasonUndecodable, Err: err}
		}
	}
	entry = inbox.Entry{
		MessageID: id.MessageID,
		Source:    id.Source,
		Message:   inbox.Raw{Name: name, Payload: msg.Payload},
		Metadata:  h.metadata(msg),
	}
	if h.config.OrderingKey != nil {
		entry.OrderingKey = h.config.OrderingKey(msg)
	}
	return entry, nil
}

func (h *handler) id(msg *message.Message) (ID, bool) {
	for _, extract := range h.config.IDs {
		if id, ok := extract(msg); ok && !blank(id.MessageID) {
			if id.Source == "" {
				id.Source = h.config.Source
			}
			return id, true
		}
	}
	return ID{}, false
}

func (h *handler) name(msg *message.Message) (string, bool) {
	for _, extract := range h.config.Names {
		if name, ok := extract(msg); ok && !blank(name) {
			return name, true
		}
	}
	return "", false
}

// metadata is what is stored with the entry; nil for none.
func (h *handler) metadata(msg *message.Message) map[string]string {
	kept := traceContext(msg.Metadata)
	for _, key := range h.config.Metadata {
		if value := lookup(msg.Metadata, key); value != "" {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[key] = value
		}
	}
	return kept
}

// permanent returns the reason why the same message can never be stored, or nil.
func permanent(err error) *RejectError {
	var entry *inbox.EntryError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, inbox.ErrUnregistered):
		return &RejectError{Reason: ReasonUnregistered, Err: err}
	case errors.As(err, &entry), errors.Is(err, inbox.ErrBatchTooLarge):
		return &RejectError{Reason: ReasonInvalid, Err: err}
	case dataException(err):
		return &RejectError{Reason: ReasonInvalid, Err: err}
	}
	return nil
}

// dataException reports class 22 of SQLSTATE: the database cannot hold the value,
// for example an id with characters that its encoding lacks.
// https://www.postgresql.org/docs/current/errcodes-appendix.html
func dataException(err error) bool {
	code := ""
	var pgx interface{ SQLState() string }
	var pgdriver interface{ Field(byte) string }
	if errors.As(err, &pgx) {
		code = pgx.SQLState()
	} else if errors.As(err, &pgdriver) {
		code = pgdriver.Field('C')
	}
	return len(code) == 5 && code[:2] == "22"
}

// reject hands the message to the policy.
func (h *handler) reject(msg *message.Message, reason *RejectError) error {
	ctx, cancel := context.WithTimeout(msg.Context(), h.config.Timeout)
	defer cancel()
	err := h.config.Reject.Reject(ctx, msg, reason)
	if errors.Is(err, reason) { // the policy is to nack
		return h.pause(msg.Context(), &h.rejects, err)
	}
	if err != nil {
		return h.pause(msg.Context(), &h.faults, fmt.Errorf("wminbox: reject (%s): %w", reason.Reason, err))
	}
	h.config.Logger.WarnContext(ctx, "wminbox: a message was rejected", "reason", string(reason.Reason),
		"topic", message.SubscribeTopicFromCtx(ctx), "handler", message.HandlerNameFromCtx(ctx))
	h.observe(ctx, func(o Observer) { o.Rejected(ctx, reason) })
	return nil
}

// waitForGate waits while the inbox is saturated. When the gate does not know,
// the accept will tell.
func (h *handler) waitForGate(ctx context.Context) error {
	if h.config.Gate == nil {
		return nil
	}
	waited, cancel := context.WithTimeout(ctx, h.config.GateWait)
	defer cancel()
	for {
		saturated, retry, err := h.config.Gate.Saturated(waited)
		if err != nil || !saturated {
			return ctx.Err()
		}
		if sleep(waited, min(max(retry, 10*time.Millisecond), time.Second)) != nil {
			return errSaturated
		}
	}
}

// pause waits before a nack and returns err.
func (h *handler) pause(ctx context.Context, p *pacer, err error) error {
	_ = sleep(ctx, p.failed())
	return err
}

// observe keeps a panicking observer from undoing what is committed.
func (h *handler) observe(ctx context.Context, call func(Observer)) {
	if h.config.Observer == nil {
		return
	}
	defer func() {
		if r := recover(); r != nil {
			h.config.Logger.ErrorContext(ctx, "wminbox: the observer panicked", "panic", fmt.Sprint(r))
		}
	}()
	call(h.config.Observer)
}
