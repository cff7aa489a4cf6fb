package main

import (
	"context"
	"fmt"
	"time"
)

// peer is one way to accept messages and to process them, on PostgreSQL.
type peer interface {
	// open connects to an empty database and makes the peer's tables.
	open(ctx context.Context, dsn string) error
	// accept stores messages and returns when they are committed.
	accept(ctx context.Context, messages []message) error
	// process runs the handler for what is stored until w is done.
	process(ctx context.Context, how settings, w *work) error
	// counts returns the queries that check the peer.
	counts() counts
	close()
}

// settings are how a peer processes.
type settings struct {
	workers int
	batch   int  // messages per transaction, where the peer has that
	many    bool // one handler call per batch
	poll    time.Duration
}

func (s settings) String() string {
	if s.workers == 0 {
		return "defaults"
	}
	text := fmt.Sprintf("%d workers", s.workers)
	if s.workers == 1 {
		text = "1 worker"
	}
	if s.batch > 0 {
		text += fmt.Sprintf(", batch %d", s.batch)
	}
	return text
}

// The names of the peers, as they stand in tables and files.
const (
	letterboxPeer      = "letterbox"
	letterboxBunPeer   = "letterbox-bun"
	togetherPeer       = "letterbox-one-process"
	byHandPeer         = "by-hand"
	byHandBunPeer      = "by-hand-bun"
	setBasedPeer       = "set-based"
	riverPeer          = "river"
	riverTunedPeer     = "river-tuned"
	guePeer            = "gue"
	watermillPeer      = "watermill-sql"
	watermillQueuePeer = "watermill-sql-queue"
)

// profile is what is known of a peer beforehand.
type profile struct {
	new func() peer
	// share is the part of the rows that the peer gets in a drain, so that a round
	// of a slow one does not take minutes. A shorter backlog does not slow it down.
	share float64
	// workers are the numbers to choose the best of; the first is taken where
	// nothing is tuned.
	workers []int
	// batch replaces a smaller one: the peer is at its best there.
	batch int
	// poll is how often an idle worker looks.
	poll time.Duration
}

var profiles = map[string]profile{
	letterboxPeer:      {new: newLetterbox, share: 1, workers: []int{4, 1, 16}},
	letterboxBunPeer:   {new: newLetterboxBun, share: 1, workers: []int{4, 1, 16}},
	togetherPeer:       {new: newLetterbox, share: 1, workers: []int{4}},
	byHandPeer:         {new: newByHand, share: 1, workers: []int{4, 1, 16}},
	byHandBunPeer:      {new: newByHandBun, share: 1, workers: []int{4, 1, 16}},
	setBasedPeer:       {new: newSetBased, share: 1, workers: []int{4, 1, 16}},
	riverPeer:          {new: newRiverDefault, share: 0.05, workers: []int{100}},
	riverTunedPeer:     {new: newRiverTuned, share: 0.1, workers: []int{50, 16, 100, 200}},
	guePeer:            {new: newGue, share: 0.2, workers: []int{16, 4, 50}, poll: 10 * time.Millisecond},
	watermillPeer:      {new: newWatermill, share: 0.5, workers: []int{1}, batch: 100, poll: 10 * time.Millisecond},
	watermillQueuePeer: {new: newWatermillQueue, share: 0.5, workers: []int{1}, batch: 100, poll: 10 * time.Millisecond},
}

// opened is a peer with a database of its own.
type opened struct {
	peer
	db *database
}

func openPeer(ctx context.Context, s *server, p peer) (*opened, error) {
	db, err := s.create(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.open(ctx, db.dsn); err != nil {
		p.close()
		_ = db.drop(ctx)
		return nil, fmt.Errorf("open: %w", err)
	}
	return &opened{p, db}, nil
}

func (o *opened) closeAll(ctx context.Context) error {
	o.peer.close()
	return o.db.drop(ctx)
}
