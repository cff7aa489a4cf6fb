package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

// sqliteFile is a database in WAL mode, in a directory of its own, with the
// inbox's tables and the one of effects.
type sqliteFile struct {
	dir  string
	db   *bun.DB
	repo *inbox.Repository
}

func openSQLite(ctx context.Context) (_ *sqliteFile, err error) {
	f := &sqliteFile{}
	if f.dir, err = os.MkdirTemp("", "letterbox-bench-"); err != nil {
		return nil, err
	}
	if f.db, err = testdb.OpenSQLite(filepath.Join(f.dir, "bench.db")); err == nil {
		f.repo, err = newRepository(ctx, f.db, inbox.Config{})
	}
	if err == nil {
		_, err = f.db.ExecContext(ctx, createEffects)
	}
	if err != nil {
		_ = f.close(ctx)
		return nil, err
	}
	return f, nil
}

func (f *sqliteFile) close(context.Context) error {
	if f.db != nil {
		_ = f.db.Close()
	}
	return os.RemoveAll(f.dir)
}

func (f *sqliteFile) count(ctx context.Context, query string) (n int64, err error) {
	err = f.db.DB.QueryRowContext(ctx, query).Scan(&n)
	return n, err
}

func (f *sqliteFile) committed(ctx context.Context) (int64, error) { return f.count(ctx, countEffects) }

func (f *sqliteFile) clear(ctx context.Context) error {
	for _, statement := range []string{"DELETE FROM effects", "PRAGMA wal_checkpoint(TRUNCATE)"} {
		if _, err := f.db.DB.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

func (f *sqliteFile) verify(ctx context.Context, messages []message) error {
	var rows, distinct, cents int64
	err := f.db.DB.QueryRowContext(ctx, "SELECT count(*), count(DISTINCT message_id), COALESCE(sum(cents), 0) FROM effects").
		Scan(&rows, &distinct, &cents)
	if err != nil {
		return err
	}
	unfinished, err := f.count(ctx, "SELECT (SELECT count(*) FROM inbox_queue) + (SELECT count(*) FROM inbox_messages WHERE status <> 1)")
	if err != nil {
		return err
	}
	if n := int64(len(messages)); rows != n || distinct != n || cents != sum(messages) || unfinished != 0 {
		return fmt.Errorf("%w: %d rows for %d of %d messages, %d unfinished", errRefused, rows, distinct, n, unfinished)
	}
	return nil
}

// sqlitePeer processes what is in the file until the work is done. wake is
// signalled after each accept.
type sqlitePeer func(ctx context.Context, f *sqliteFile, how settings, w *work, wake <-chan struct{}) error

func sqliteLetterbox(ctx context.Context, f *sqliteFile, how settings, w *work, _ <-chan struct{}) error {
	return processWith(ctx, f.repo, f.db, effects{one: func(ctx context.Context, db *bun.DB, m *message) error {
		_, err := inbox.SQL(ctx, db.DB).ExecContext(ctx, sqliteByHandEffect, m.ID, m.Account, m.Cents)
		return err
	}}, how, w)
}

var sqlitePeers = []struct {
	name    string
	process sqlitePeer
}{{letterboxPeer, sqliteLetterbox}, {byHandPeer, sqliteByHand}}

// sqliteDrain is a full backlog, drained in batches by the one writer. Its clock
// ends when a reader sees the last effect.
func sqliteDrain(name string, process sqlitePeer, n int, how settings) contender {
	open := func(ctx context.Context) (trial, error) {
		f, err := openSQLite(ctx)
		if err != nil {
			return trial{}, err
		}
		var messages []message
		return trial{
			prepare: func(ctx context.Context) error {
				messages = newMessages(n)
				err := inBatches(messages, loadBatch, func(batch []message) error { return acceptInto(ctx, f.repo, batch) })
				if err != nil {
					return err
				}
				return f.clear(ctx)
			},
			run: func(ctx context.Context) ([]figure, error) {
				w := newWork(n, f.committed)
				w.pause = time.Millisecond
				var took time.Duration
				began := time.Now()
				w.finished = func() { took = time.Since(began) }
				if err := process(ctx, f, how, w, nil); err != nil {
					return nil, err
				}
				return []figure{{perSecond, float64(n) / took.Seconds()}}, f.verify(ctx, messages)
			},
			close: f.close,
		}, nil
	}
	return contender{peer: name, n: n, note: how.String(), open: open}
}
