package inbox

import (
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

// claimedRow is what both databases return of a claimed message.
type claimedRow struct {
	ID            int64
	OrderingKey   string
	Attempts      int
	Interruptions int
	Starts        int
	Source        string
	MessageID     string
	Name          string
	Payload       []byte
	Metadata      string
}

func (r *claimedRow) claimed(due, received time.Time) *Claimed {
	metadata, damaged := decodeMetadata(r.Metadata)
	if r.Payload == nil {
		r.Payload = []byte{}
	}
	return &Claimed{
		Info: Info{
			ID:          r.ID,
			Identity:    Identity{r.Source, r.MessageID, r.Name},
			OrderingKey: r.OrderingKey,
			Attempt:     r.Attempts + 1,
			Metadata:    metadata,
			ReceivedAt:  received.UTC(),
		},
		Payload:       r.Payload,
		due:           due,
		attempts:      r.Attempts,
		interruptions: r.Interruptions,
		starts:        r.Starts,
		damaged:       damaged,
	}
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
