package wmsql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/transport/wminbox"
)

// ErrNoTransaction is returned by the handler for a message that does not come from
// a watermill-sql subscriber.
var ErrNoTransaction = errors.New("wmsql: the message carries no transaction: use package wminbox")

// The savepoint behind which each message runs.
const (
	savepoint  = "SAVEPOINT letterbox_message"
	rollbackTo = "ROLLBACK TO SAVEPOINT letterbox_message"
	release    = "RELEASE SAVEPOINT letterbox_message"

	undoTimeout = 10 * time.Second
)

// NewHandler returns a handler for a Watermill router that adds each message to repo
// in the transaction of the watermill-sql subscriber it comes from. The pauses of
// config are not used: the subscriber waits its own RetryInterval after an error.
func NewHandler(repo *inbox.Repository, config wminbox.Config) (message.NoPublishHandlerFunc, error) {
	if repo == nil {
		return nil, errors.New("wmsql: NewHandler needs a repository")
	}
	if config.Reject == nil && config.DB != nil {
		park, err := wminbox.NewPark(config.DB, wminbox.ParkConfig{})
		if err != nil {
			return nil, err
		}
		config.Reject = park
	}
	if policy, ok := config.Reject.(transactional); ok {
		config.Reject = inTransaction{policy}
	}
	config.PauseBase = -1
	handle, err := wminbox.NewHandler(adder{repo}, config)
	if err != nil {
		return nil, err
	}
	return func(msg *message.Message) error { return deliver(msg, handle) }, nil
}

// deliver runs handle behind a savepoint. nil means: go on, or the transaction is
// gone and all of its messages come again.
func deliver(msg *message.Message, handle message.NoPublishHandlerFunc) error {
	ctx := msg.Context()
	tx, ok := wmsql.TxFromContext(ctx)
	if !ok {
		// Somebody else's subscriber, which may redeliver at once.
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
		return ErrNoTransaction
	}
	if _, err := tx.ExecContext(ctx, savepoint); err != nil {
		return end(tx)
	}
	err := handle(msg)
	var reason *wminbox.RejectError
	switch {
	case err == nil:
		if _, err := tx.ExecContext(ctx, release); err != nil {
			return end(tx)
		}
		return nil
	case errors.As(err, &reason):
		// The policy is to nack: nothing was written, the batch need not suffer.
		if undo(ctx, tx) != nil {
			return end(tx)
		}
		return err
	}
	return end(tx)
}

// end rolls the subscriber's transaction back. The router acks then, but the ack can
// only be written in the transaction that is gone.
func end(tx *sql.Tx) error {
	_ = tx.Rollback()
	return nil
}

// undo works although the handler's context may have ended.
func undo(ctx context.Context, tx *sql.Tx) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	_, err := tx.ExecContext(ctx, rollbackTo)
	return err
}

// adder is the repository as an Accepter that leaves the commit to the subscriber.
type adder struct{ repo *inbox.Repository }

func (a adder) Accept(ctx context.Context, entries []inbox.Entry) ([]inbox.Outcome, error) {
	tx, ok := wmsql.TxFromContext(ctx)
	if !ok {
		return nil, ErrNoTransaction
	}
	outcomes, err := a.repo.Add(ctx, tx, entries)
	if err != nil {
		// So that the reject policy can write, if that is what comes next.
		if undone := undo(ctx, tx); undone != nil {
			return nil, fmt.Errorf("%w; then: %v", err, undone)
		}
		return nil, err
	}
	return outcomes, nil
}

// transactional is a policy that can write in a given transaction; *wminbox.Park is.
type transactional interface {
	RejectTx(ctx context.Context, tx bun.IConn, msg *message.Message, reason *wminbox.RejectError) error
}

type inTransaction struct{ policy transactional }

func (r inTransaction) Reject(ctx context.Context, msg *message.Message, reason *wminbox.RejectError) error {
	tx, ok := wmsql.TxFromContext(ctx)
	if !ok {
		return ErrNoTransaction
	}
	return r.policy.RejectTx(ctx, tx, msg, reason)
}
