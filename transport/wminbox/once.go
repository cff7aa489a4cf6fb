package wminbox

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
)

// ErrPublishes is returned by the middleware of Once for every message of a
// handler whose returned messages the router would publish: a crash between the
// commit and that publish would lose them. The handler did not run. Use
// AddConsumerHandler, and publish through the outbox.
var ErrPublishes = errors.New("wminbox: once: the handler has a publish topic: use AddConsumerHandler and the outbox")

// OnceConfig says which receipt a message has. Consumer is required.
type OnceConfig struct {
	// Consumer names the handler: two that see one message need two names.
	Consumer string
	// IDs finds the message id, as in Config.
	// Default: CloudEvents, StandardWebhooks, NATSMsgID, AMQPMessageID, UUID.
	IDs []IDExtractor
	// Source is the inbox source of ids that bring none of their own. Default "".
	Source string
}

// Once returns a middleware that handles messages inline, without a processor: it
// puts the handler inside Repository.HandleOnce. The handler writes through
// inbox.DB(msg.Context(), db), and its rows commit together with the receipt; a
// redelivery is acked without calling it. An error of the handler undoes both and
// nacks, so that the redelivery runs it again.
//
// A message without an id comes back as a *RejectError and one with a bad id as an
// *inbox.EntryError: the router nacks them, again and again. Put Watermill's
// PoisonQueueWithFilter outside of this middleware, with IsPermanent as its filter.
func Once(repo *inbox.Repository, config OnceConfig) (message.HandlerMiddleware, error) {
	if repo == nil || config.Consumer == "" {
		return nil, errors.New("wminbox: Once needs a repository and a Consumer")
	}
	ids := Config{IDs: config.IDs, Source: config.Source}
	ids.setDefaults()
	identify := &handler{config: ids}
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			outer := msg.Context()
			if topic := message.PublishTopicFromCtx(outer); topic != "" && topic != message.SubscribeTopicFromCtx(outer) {
				return nil, ErrPublishes
			}
			id, ok := identify.id(msg)
			if !ok {
				return nil, &RejectError{Reason: ReasonNoID}
			}
			receipt := inbox.Receipt{Source: id.Source, MessageID: id.MessageID, Name: config.Consumer}
			_, err := repo.HandleOnce(outer, receipt, func(ctx context.Context, _ bun.IDB) error {
				msg.SetContext(ctx)
				defer msg.SetContext(outer)
				_, err := next(msg)
				return err
			})
			return nil, err
		}
	}, nil
}

// IsPermanent reports errors of Once that no redelivery can cure.
func IsPermanent(err error) bool {
	var reject *RejectError
	var entry *inbox.EntryError
	return errors.As(err, &reject) || errors.As(err, &entry) || errors.Is(err, ErrPublishes)
}
