package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// The hand-written loop on SQLite: one connection, every statement prepared once,
// the ids of a batch as a JSON array so that its text is always the same.
const (
	sqliteByHandClaim = `
SELECT q.id, m.payload FROM inbox_queue q JOIN inbox_messages m ON m.id = q.id
WHERE q.name = 'credit_account' AND q.state = 0 AND q.due <= ?
ORDER BY q.due, q.id
LIMIT ?`
	sqliteByHandEffect = `INSERT INTO effects (message_id, account, cents) VALUES (?, ?, ?)`
	sqliteByHandDelete = `DELETE FROM inbox_queue WHERE id IN (SELECT value FROM json_each(?))`
	sqliteByHandSettle = `
UPDATE inbox_messages SET status = 1, processed_at = ?
WHERE id IN (SELECT value FROM json_each(?)) AND status = 0`

	sqliteByHandTime = "2006-01-02T15:04:05.000000Z"
)

// sqliteHand is that connection.
type sqliteHand struct {
	*sql.Conn
	claim, effect, remove, settle *sql.Stmt
}

func sqliteByHand(ctx context.Context, f *sqliteFile, how settings, w *work, wake <-chan struct{}) error {
	return w.until(ctx, func(ctx context.Context) error {
		conn, err := f.db.DB.Conn(context.WithoutCancel(ctx))
		if err != nil {
			return err
		}
		defer conn.Close()
		h := &sqliteHand{Conn: conn}
		for text, statement := range map[string]**sql.Stmt{
			sqliteByHandClaim: &h.claim, sqliteByHandEffect: &h.effect, sqliteByHandDelete: &h.remove, sqliteByHandSettle: &h.settle,
		} {
			if *statement, err = conn.PrepareContext(ctx, text); err != nil {
				return ignoreEnd(ctx, err)
			}
			defer (*statement).Close()
		}
		for ctx.Err() == nil {
			n, err := h.batch(context.WithoutCancel(ctx), how.batch, w)
			if err != nil {
				return err
			}
			if n == 0 {
				select {
				case <-wake:
				case <-time.After(time.Second):
				case <-ctx.Done():
				}
			}
		}
		return nil
	})
}

func (h *sqliteHand) batch(ctx context.Context, size int, w *work) (n int, err error) {
	if _, err := h.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return 0, err
	}
	n, err = h.inTransaction(ctx, size, w)
	end := "COMMIT"
	if err != nil {
		end = "ROLLBACK"
	}
	_, failure := h.ExecContext(ctx, end)
	return n, errors.Join(err, failure)
}

func (h *sqliteHand) inTransaction(ctx context.Context, size int, w *work) (int, error) {
	ids, messages, err := h.claimed(ctx, size)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	for i := range messages {
		if _, err := h.effect.ExecContext(ctx, messages[i].ID, messages[i].Account, messages[i].Cents); err != nil {
			return 0, err
		}
		w.did(1)
	}
	list, err := json.Marshal(ids)
	if err != nil {
		return 0, err
	}
	if _, err := h.remove.ExecContext(ctx, string(list)); err != nil {
		return 0, err
	}
	result, err := h.settle.ExecContext(ctx, time.Now().UTC().Format(sqliteByHandTime), string(list))
	if err != nil {
		return 0, err
	}
	settled, err := result.RowsAffected()
	if err == nil && settled != int64(len(ids)) {
		err = fmt.Errorf("settled %d of %d", settled, len(ids))
	}
	return len(ids), err
}

func (h *sqliteHand) claimed(ctx context.Context, size int) (ids []int64, messages []message, err error) {
	rows, err := h.claim.QueryContext(ctx, time.Now().UTC().Format(sqliteByHandTime), size)
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		var payload []byte
		if err := rows.Scan(&id, &payload); err != nil {
			return nil, nil, err
		}
		m, err := decode(payload)
		if err != nil {
			return nil, nil, err
		}
		ids, messages = append(ids, id), append(messages, m)
	}
	return ids, messages, rows.Err()
}
