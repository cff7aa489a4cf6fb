package inbox

import (
	"context"
	"math"
	"time"
)

const (
	// How many rows one call examines at most: of the history, whose rows lie
	// beside each other, and of the queue, whose messages lie anywhere.
	listWindow      = 20_000
	listWindowQueue = 5_000
	retryWindow     = 10_000

	// After windows without a match others follow, for so long.
	listPatience = 100 * time.Millisecond

	listPage     = 50
	listPageMost = 1000
)

// Filter chooses messages. Zero fields do not restrict.
type Filter struct {
	// Status restricts to one status. Dead leaves out the discarded ones.
	Status StatusKind
	// Name, Source, OrderingKey and MessageID are compared byte for byte. Name
	// is the stored one: former names are names of their own.
	Name        string
	Source      string
	OrderingKey string
	MessageID   string
	// ReceivedAfter and ReceivedBefore bound the time of receipt: the first
	// included, the second not.
	ReceivedAfter  time.Time
	ReceivedBefore time.Time
	// ErrorContains looks into the last error of dead and failing messages, in
	// any case of ASCII letters.
	ErrorContains string
	// Failing chooses pending messages that have failed at least once.
	Failing bool
	// Parked chooses messages that wait for an earlier one of their ordering key.
	Parked bool
	// Discarded chooses the discarded ones.
	Discarded bool
}

// Page is a place in a list.
type Page struct {
	// Before is what the call for the page before returned as next. Zero: the
	// first page.
	Before int64
	// Limit is how many messages are returned at most. Default 50, at most 1000.
	Limit int
}

// Summary is a stored message as lists show it, without payload and metadata.
type Summary struct {
	// ID is the message's number in accept order.
	ID int64
	Identity
	OrderingKey string
	Kind        StatusKind
	// Discarded is true for a dead message that an operator gave up.
	Discarded bool
	// Parked is true while an earlier message of the ordering key is unfinished
	// and the database knows that this one has to wait.
	Parked bool
	// Blocking is true for a dead message that holds up its ordering key.
	Blocking bool
	// Attempts is how many attempts have failed, Interruptions how many runs
	// the database has broken off.
	Attempts      int
	Interruptions int
	LastError     string
	// All times are by the database's clock, in UTC.
	ReceivedAt       time.Time
	Due              time.Time // when the next attempt may start; zero unless Pending
	DiedAt           time.Time // zero unless Dead and not discarded
	ProcessedAt      time.Time // zero unless Processed
	DiscardedAt      time.Time // zero unless Discarded
	PayloadRemovedAt time.Time // when the sweep removed the payload; zero if it did not
}

// Detail is everything that is known of a stored message.
type Detail struct {
	Summary
	// BlockedBy is the ID of the first unfinished message of the ordering key,
	// if that comes before this one; else 0.
	BlockedBy int64
	// Metadata is nil where RawMetadata is not a JSON object of strings: a
	// receipt may carry any JSON.
	Metadata    map[string]string
	RawMetadata string
	Fingerprint []byte
	// Payload is nil where there is none: it was removed, or the message was
	// handled inline.
	Payload []byte
	// History holds the failed attempts that are still remembered, oldest first.
	History []AttemptRecord
}

// AttemptRecord is a failed attempt.
type AttemptRecord struct {
	Number    int // in the order of recording, from 1; a retry does not start anew
	StartedAt time.Time
	Duration  time.Duration
	Processor string // the ID of the processor
	Error     string
}

// List returns messages that match the filter, the newest first, and where to go
// on: next belongs into Page.Before, and 0 means the end.
//
// One call examines a bounded number of rows, so that it is quick however many
// there are: a page may be short, or empty, although next says that there is
// more. Unfinished and dead messages are looked for among themselves; processed
// and discarded ones, and those of any status, in the whole history. A MessageID
// is found at once, in the first 1,000 sources.
func (r *Repository) List(ctx context.Context, filter Filter, page Page) (summaries []Summary, next int64, err error) {
	if page.Before <= 0 {
		page.Before = math.MaxInt64
	}
	if page.Limit <= 0 {
		page.Limit = listPage
	}
	page.Limit = min(page.Limit, listPageMost)
	if filter.impossible() {
		return nil, 0, nil
	}
	err = r.reading(ctx, func(ctx context.Context, q querier) error {
		var rows []summaryRow
		for began := time.Now(); ; page.Before = next {
			rows, next, err = r.listRows(ctx, q, filter, page)
			if len(rows) > 0 || next == 0 || err != nil || time.Since(began) > listPatience {
				break
			}
		}
		summaries = make([]Summary, len(rows))
		for i := range rows {
			summaries[i] = rows[i].summary()
		}
		return err
	})
	if err != nil {
		return nil, 0, r.wrap("list", err)
	}
	return summaries, next, nil
}

// Get returns a message with its payload and the history of its attempts.
// ErrNotFound.
func (r *Repository) Get(ctx context.Context, id int64) (Detail, error) {
	var detail Detail
	err := r.reading(ctx, func(ctx context.Context, q querier) (err error) {
		detail, err = r.detail(ctx, q, id)
		return err
	})
	if err != nil {
		return Detail{}, r.acted("get", err)
	}
	return detail, nil
}

// impossible reports that no message can match.
func (f *Filter) impossible() bool {
	waiting := f.Failing || f.Parked
	switch {
	case f.Discarded:
		return waiting || f.ErrorContains != "" && f.queuedOnly() || f.Status != 0 && f.Status != Dead
	case waiting:
		return f.Status != 0 && f.Status != Pending
	case f.ErrorContains != "":
		return f.Status == Processed
	}
	return false
}

// queuedOnly reports that what matches is in the queue.
func (f *Filter) queuedOnly() bool {
	return !f.Discarded && (f.Status == Pending || f.Status == Dead || f.Failing || f.Parked || f.ErrorContains != "")
}
