package inbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"
)

// The statuses of a message, as stored. A retry is pending with attempts > 0.
const (
	statusPending   = 0
	statusProcessed = 1
	statusDead      = 2
)

// stateParked is the state of a queued message that waits for an earlier one of
// its ordering key; the others have their status as state.
const stateParked = 1

// Info describes a stored message, without its payload.
type Info struct {
	// ID is the message's number in accept order.
	ID int64
	Identity
	OrderingKey string
	// Attempt is the number of this attempt, from 1.
	Attempt  int
	Metadata map[string]string
	// ReceivedAt is when the message was accepted, by the database's clock, in UTC.
	ReceivedAt time.Time
}

// Claimed is a message that the transaction which called GetMany has locked.
type Claimed struct {
	Info
	Payload []byte

	due           time.Time
	attempts      int
	interruptions int
	starts        int    // by cautious processors
	busy          bool   // somebody else holds the lock of its ordering key
	transaction   string // id of the claiming transaction, where there is one
	damaged       error  // the row cannot be read: it dies, and holds nobody up

	processor *Processor // that has processed it in a transaction of the caller's
	result    *result    // and what is to be told after the commit
}

// claimedRows runs a query that claims. Its columns are the same on both databases.
func (d *database) claimedRows(ctx context.Context, q querier, query string, args ...any) (all []*Claimed, err error) {
	err = d.eachRow(ctx, q, query, args, func(rows *sql.Rows) error {
		c := &Claimed{}
		var due, received moment
		var metadata string
		var transaction sql.NullString
		err := rows.Scan(&c.ID, &c.OrderingKey, &due, &c.attempts, &c.interruptions, &c.starts,
			&c.Source, &c.MessageID, &c.Name, &c.Payload, &metadata, &received, &transaction, &c.busy)
		if err != nil {
			return fmt.Errorf("message %d: %w", c.ID, err)
		}
		if c.Payload == nil {
			c.Payload = []byte{}
		}
		c.Attempt = c.attempts + 1
		c.Metadata, c.damaged = decodeMetadata(metadata)
		c.due, c.ReceivedAt, c.transaction = due.Time, received.UTC(), transaction.String
		all = append(all, c)
		return nil
	})
	return all, err
}

func decodeMetadata(text string) (map[string]string, error) {
	if text == "" {
		return nil, nil
	}
	var metadata map[string]string
	if err := json.Unmarshal([]byte(text), &metadata); err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	return metadata, nil
}
