package main

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/letterbox-go/letterbox/internal/testdb"
)

// byHandBun sends the statements of byHand through bun and database/sql, as the
// library does: what is between the two is the price of that way to the server
// (arguments written into the text, which the server parses and plans each
// time), and what is between this and the library is the library's own.
type byHandBun struct{ db *bun.DB }

func newByHandBun() peer { return &byHandBun{} }

var numbered = regexp.MustCompile(`\$\d+`)

// bunQuery turns $1 into bun's ?0.
func bunQuery(query string) string {
	return numbered.ReplaceAllStringFunc(query, func(place string) string {
		n, _ := strconv.Atoi(place[1:]) // the pattern allows nothing else
		return "?" + strconv.Itoa(n-1)
	})
}

var (
	bunAcceptOne  = bunQuery(byHandAcceptOne)
	bunAcceptMany = bunQuery(byHandAcceptMany)
	bunClaim      = bunQuery(byHandClaim)
	bunSettle     = bunQuery(byHandSettle)
)

func (b *byHandBun) open(ctx context.Context, dsn string) (err error) {
	if err := makeInboxTables(ctx, dsn); err != nil {
		return err
	}
	if b.db, err = testdb.OpenPGX(dsn); err == nil {
		b.db.SetMaxOpenConns(80)
		b.db.SetMaxIdleConns(80)
	}
	return err
}

func (b *byHandBun) accept(ctx context.Context, messages []message) (err error) {
	ids := make([]string, len(messages))
	payloads, fingerprints := make([][]byte, len(messages)), make([][]byte, len(messages))
	for i := range messages {
		ids[i], payloads[i] = messages[i].ID, messages[i].encode()
		fingerprint := sha256.Sum256(payloads[i])
		fingerprints[i] = fingerprint[:]
	}
	if len(messages) == 1 {
		_, err = b.db.NewRaw(bunAcceptOne, messageSource, ids[0], messageName, payloads[0], fingerprints[0]).Exec(ctx)
		return err
	}
	_, err = b.db.NewRaw(bunAcceptMany, messageSource, pgdialect.Array(ids), messageName,
		pgdialect.Array(payloads), pgdialect.Array(fingerprints)).Exec(ctx)
	return err
}

func (b *byHandBun) process(ctx context.Context, how settings, w *work) error {
	return w.until(ctx, func(ctx context.Context) error {
		return together(ctx, repeat(how.workers, func(ctx context.Context) error { return b.loop(ctx, how, w) })...)
	})
}

func (b *byHandBun) loop(ctx context.Context, how settings, w *work) error {
	claim := fmt.Sprintf(bunClaim, how.batch)
	var from position
	for ctx.Err() == nil {
		n := 0
		err := b.db.RunInTx(context.WithoutCancel(ctx), nil, func(ctx context.Context, tx bun.Tx) (err error) {
			n, err = b.batch(ctx, tx, claim, &from, how, w)
			return err
		})
		switch {
		case err != nil:
			return err
		case n > 0:
		case from != position{}:
			from = position{}
		default:
			select {
			case <-time.After(time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
	return nil
}

func (b *byHandBun) batch(ctx context.Context, tx bun.Tx, claim string, from *position, how settings, w *work) (int, error) {
	var batch []struct {
		ID      int64
		Due     time.Time
		Payload []byte
	}
	err := tx.NewRaw(claim, messageName, from.due, from.id).Scan(ctx, &batch)
	if err != nil || len(batch) == 0 {
		return 0, err
	}
	ids, messages := make([]int64, len(batch)), make([]message, len(batch))
	for i := range batch {
		ids[i] = batch[i].ID
		if messages[i], err = decode(batch[i].Payload); err != nil {
			return 0, err
		}
		if how.many {
			continue
		}
		if err := insertWithBun(ctx, tx, &messages[i]); err != nil {
			return 0, err
		}
		w.did(1)
	}
	if how.many {
		if err := insertManyWithBun(ctx, tx, messages); err != nil {
			return 0, err
		}
		w.did(len(messages))
	}
	*from = position{batch[len(batch)-1].Due, batch[len(batch)-1].ID}
	return len(batch), settled(tx.NewRaw(bunSettle, pgdialect.Array(ids), len(ids)).Exec(ctx))(len(ids))
}

// settled checks the number of rows.
func settled(result sql.Result, err error) func(want int) error {
	return func(want int) error {
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		if err == nil && n != int64(want) {
			err = fmt.Errorf("settled %d of %d", n, want)
		}
		return err
	}
}

func (b *byHandBun) counts() counts { return inboxCounts }

func (b *byHandBun) close() {
	if b.db != nil {
		_ = b.db.Close()
	}
}
