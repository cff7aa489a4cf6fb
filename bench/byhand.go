package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// byHand is what a good engineer would write for this one handler on the same two
// tables: pgx without database/sql, each statement prepared once per connection,
// no checks, retries, attempts or second name. It is the limit of a library that
// runs handlers in Go.
type byHand struct {
	pool *pgxpool.Pool
	wake bool // accept notifies
}

func newByHand() peer { return &byHand{} }

func (b *byHand) open(ctx context.Context, dsn string) (err error) {
	if err := makeInboxTables(ctx, dsn); err != nil {
		return err
	}
	b.pool, err = openPool(ctx, dsn, 80)
	return err
}

// makeInboxTables makes the tables with the library, and leaves.
func makeInboxTables(ctx context.Context, dsn string) error {
	l := &letterbox{}
	defer l.close()
	return l.open(ctx, dsn)
}

func (b *byHand) accept(ctx context.Context, messages []message) (err error) {
	if len(messages) == 1 {
		payload := messages[0].encode()
		fingerprint := sha256.Sum256(payload)
		query := byHandAcceptOne
		if b.wake {
			query = byHandAcceptAndWake
		}
		_, err = b.pool.Exec(ctx, query, messageSource, messages[0].ID, messageName, payload, fingerprint[:])
		return err
	}
	ids := make([]string, len(messages))
	payloads, fingerprints := make([][]byte, len(messages)), make([][]byte, len(messages))
	for i := range messages {
		ids[i], payloads[i] = messages[i].ID, messages[i].encode()
		fingerprint := sha256.Sum256(payloads[i])
		fingerprints[i] = fingerprint[:]
	}
	_, err = b.pool.Exec(ctx, byHandAcceptMany, messageSource, ids, messageName, payloads, fingerprints)
	return err
}

// process starts the workers, and one connection that listens for them.
func (b *byHand) process(ctx context.Context, how settings, w *work) error {
	return w.until(ctx, func(ctx context.Context) error {
		wake := make(chan struct{}, how.workers)
		return together(ctx, append(repeat(how.workers, func(ctx context.Context) error {
			return b.loop(ctx, how, w, wake)
		}), func(ctx context.Context) error { return b.listen(ctx, wake) })...)
	})
}

// claimed is a message in hand.
type claimed struct {
	id      int64
	due     time.Time
	payload []byte
}

// position is where a worker's next claim starts.
type position struct {
	due time.Time
	id  int64
}

func (b *byHand) loop(ctx context.Context, how settings, w *work, wake <-chan struct{}) error {
	claim := fmt.Sprintf(byHandClaim, how.batch)
	var from position
	for ctx.Err() == nil {
		n := 0
		err := pgx.BeginFunc(context.WithoutCancel(ctx), b.pool, func(tx pgx.Tx) (err error) {
			n, err = b.batch(ctx, tx, claim, &from, how, w)
			return err
		})
		switch {
		case err != nil:
			return err
		case n > 0:
		case from != position{}: // something may have been committed behind it
			from = position{}
		default:
			select {
			case <-wake:
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	}
	return nil
}

func (b *byHand) batch(ctx context.Context, tx pgx.Tx, claim string, from *position, how settings, w *work) (int, error) {
	ctx = context.WithoutCancel(ctx)
	rows, err := tx.Query(ctx, claim, messageName, from.due, from.id)
	if err != nil {
		return 0, err
	}
	batch, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c claimed, err error) {
		err = row.Scan(&c.id, &c.due, &c.payload)
		return c, err
	})
	if err != nil || len(batch) == 0 {
		return 0, err
	}
	ids, messages := make([]int64, len(batch)), make([]message, len(batch))
	for i := range batch {
		ids[i] = batch[i].id
		if messages[i], err = decode(batch[i].payload); err != nil {
			return 0, err
		}
		if how.many {
			continue
		}
		if err := handle(ctx, tx, &messages[i], w); err != nil {
			return 0, err
		}
	}
	if how.many {
		if err := handleMany(ctx, tx, messages, w); err != nil {
			return 0, err
		}
	}
	*from = position{batch[len(batch)-1].due, batch[len(batch)-1].id}
	tag, err := tx.Exec(ctx, byHandSettle, ids, len(ids))
	if err == nil && tag.RowsAffected() != int64(len(ids)) {
		err = fmt.Errorf("settled %d of %d", tag.RowsAffected(), len(ids))
	}
	return len(batch), err
}

// executor is a transaction or a pool of pgx.
type executor interface {
	Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error)
}

// handle is the handler of everybody who is on pgx.
func handle(ctx context.Context, tx executor, m *message, w *work) error {
	_, err := tx.Exec(ctx, insertEffect, m.ID, m.Account, m.Cents)
	if err == nil {
		w.did(1)
	}
	return err
}

func handleMany(ctx context.Context, tx executor, messages []message, w *work) error {
	ids, accounts, cents := columns(messages)
	_, err := tx.Exec(ctx, insertEffects, ids, accounts, cents)
	if err == nil {
		w.did(len(messages))
	}
	return err
}

// listen passes notifications on.
func (b *byHand) listen(ctx context.Context, wake chan<- struct{}) error {
	conn, err := b.pool.Acquire(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	own := conn.Hijack()
	defer own.Close(context.WithoutCancel(ctx))
	if _, err := own.Exec(ctx, byHandListen); err != nil {
		return ignoreEnd(ctx, err)
	}
	for {
		if _, err := own.WaitForNotification(ctx); err != nil {
			return ignoreEnd(ctx, err)
		}
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

func (b *byHand) counts() counts { return inboxCounts }

func (b *byHand) close() {
	if b.pool != nil {
		b.pool.Close()
	}
}
