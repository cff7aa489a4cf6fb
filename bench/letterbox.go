package main

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/mediator"
	"github.com/letterbox-go/letterbox/wakeup"
)

// letterbox is this library as its documentation says to use it: bun over pgx,
// default settings but for what a case varies.
type letterbox struct {
	// apart accepts and processes as two processes would, with two pools, two
	// repositories and package wakeup between them. Without it, one repository does
	// both and wakes its own processor.
	apart bool
	// listening has somebody listen who does nothing else.
	listening bool
	// bun has handlers that write through bun.
	bun bool

	db   *bun.DB
	repo *inbox.Repository
	edge *inbox.Repository // accepts
	end  []func()
}

func newLetterbox() peer    { return &letterbox{} }
func newLetterboxBun() peer { return &letterbox{bun: true} }

func (l *letterbox) open(ctx context.Context, dsn string) (err error) {
	if l.db, l.repo, err = l.openProcess(ctx, dsn); err != nil {
		return err
	}
	l.edge = l.repo
	if l.apart {
		_, l.edge, err = l.openProcess(ctx, dsn)
	}
	if err == nil && l.listening {
		err = l.listen(dsn)
	}
	return err
}

// openProcess opens what a process has.
func (l *letterbox) openProcess(ctx context.Context, dsn string) (*bun.DB, *inbox.Repository, error) {
	db, err := testdb.OpenPGX(dsn)
	if err != nil {
		return nil, nil, err
	}
	l.end = append(l.end, func() { _ = db.Close() })
	config := inbox.Config{DriverArgs: []any{pgx.QueryExecModeCacheStatement}}
	if l.apart {
		waker, err := wakeup.Open(dsn, wakeup.Config{})
		if err != nil {
			return nil, nil, err
		}
		l.end = append(l.end, func() { _ = waker.Close() })
		config.Waker = waker
	}
	repo, err := newRepository(ctx, db, config)
	return db, repo, err
}

// listen hears what the repositories notify, until close.
func (l *letterbox) listen(dsn string) error {
	waker, err := wakeup.Open(dsn, wakeup.Config{})
	if err != nil {
		return err
	}
	stop := background(context.Background(), func(ctx context.Context) error {
		return waker.Listen(ctx, `"inbox_messages"`, func() {})
	})
	l.end = append(l.end, func() { _ = stop() })
	return nil
}

func newRepository(ctx context.Context, db *bun.DB, config inbox.Config) (*inbox.Repository, error) {
	names := inbox.NewNameMap()
	inbox.Register[message](names, messageName)
	repo, err := inbox.NewRepository(db, names, config)
	if err != nil {
		return nil, err
	}
	return repo, repo.Migrate(ctx)
}

func (l *letterbox) accept(ctx context.Context, messages []message) error {
	return acceptInto(ctx, l.edge, messages)
}

func acceptInto(ctx context.Context, repo *inbox.Repository, messages []message) error {
	entries := make([]inbox.Entry, len(messages))
	for i := range messages {
		m := &messages[i]
		entries[i] = inbox.Entry{Source: messageSource, MessageID: m.ID, Message: *m, OrderingKey: m.orderingKey}
	}
	_, err := repo.Accept(ctx, entries)
	return err
}

func (l *letterbox) process(ctx context.Context, how settings, w *work) error {
	write := prepared
	if l.bun {
		write = throughBun
	}
	return processWith(ctx, l.repo, l.db, write, how, w)
}

// effects are ways to write a handler.
type effects struct {
	one  func(ctx context.Context, db *bun.DB, m *message) error
	many func(ctx context.Context, db *bun.DB, messages []message) error
}

func processWith(ctx context.Context, repo *inbox.Repository, db *bun.DB, write effects, how settings, w *work) error {
	requests := mediator.NewRequestMap()
	if how.many {
		mediator.BindBatch(requests, func(ctx context.Context, messages []message) error {
			err := write.many(ctx, db, messages)
			if err == nil {
				w.did(len(messages))
			}
			return err
		})
	} else {
		mediator.BindCommand(requests, func(ctx context.Context, m message) error {
			err := write.one(ctx, db, &m)
			if err == nil {
				w.did(1)
			}
			return err
		})
	}
	p, err := inbox.NewProcessor(repo, inbox.ProcessorConfig{
		Requests: mediator.NewRequestMediator(requests), Workers: how.workers, BatchSize: how.batch,
	})
	if err != nil {
		return err
	}
	return w.until(ctx, p.Run)
}

// prepared are handlers on inbox.SQL, whose statements pgx keeps prepared.
var prepared = effects{
	one: func(ctx context.Context, db *bun.DB, m *message) error {
		_, err := inbox.SQL(ctx, db.DB).ExecContext(ctx, insertEffect, pgx.QueryExecModeCacheStatement, m.ID, m.Account, m.Cents)
		return err
	},
	many: func(ctx context.Context, db *bun.DB, messages []message) error {
		ids, accounts, cents := columns(messages)
		_, err := inbox.SQL(ctx, db.DB).ExecContext(ctx, insertEffects, pgx.QueryExecModeCacheStatement, ids, accounts, cents)
		return err
	},
}

// throughBun are handlers on inbox.DB: bun writes the arguments into the text.
var throughBun = effects{
	one: func(ctx context.Context, db *bun.DB, m *message) error {
		return insertWithBun(ctx, inbox.DB(ctx, db), m)
	},
	many: func(ctx context.Context, db *bun.DB, messages []message) error {
		return insertManyWithBun(ctx, inbox.DB(ctx, db), messages)
	},
}

func insertWithBun(ctx context.Context, db bun.IDB, m *message) error {
	_, err := db.NewRaw("INSERT INTO effects (message_id, account, cents) VALUES (?, ?, ?)", m.ID, m.Account, m.Cents).Exec(ctx)
	return err
}

func insertManyWithBun(ctx context.Context, db bun.IDB, messages []message) error {
	ids, accounts, cents := columns(messages)
	_, err := db.NewRaw("INSERT INTO effects (message_id, account, cents) SELECT * FROM unnest(?::text[], ?::text[], ?::bigint[])",
		pgdialect.Array(ids), pgdialect.Array(accounts), pgdialect.Array(cents)).Exec(ctx)
	return err
}

func columns(messages []message) (ids, accounts []string, cents []int64) {
	ids, accounts, cents = make([]string, len(messages)), make([]string, len(messages)), make([]int64, len(messages))
	for i := range messages {
		ids[i], accounts[i], cents[i] = messages[i].ID, messages[i].Account, messages[i].Cents
	}
	return ids, accounts, cents
}

func (l *letterbox) counts() counts { return inboxCounts }

// inboxCounts are for everybody who works on the inbox's two tables. Other
// names, the dead and what is due later are not of the run.
var inboxCounts = counts{
	stored: `SELECT count(*) FROM inbox_messages WHERE name = '` + messageName + `'`,
	unfinished: `
SELECT (SELECT count(*) FROM inbox_queue WHERE name = '` + messageName + `' AND state = 0 AND due <= clock_timestamp())
	+ (SELECT count(*) FROM inbox_messages m WHERE name = '` + messageName + `' AND status = 0
		AND NOT EXISTS (SELECT FROM inbox_queue q WHERE q.id = m.id))`,
}

func (l *letterbox) close() {
	for _, end := range slices.Backward(l.end) {
		end()
	}
	l.end = nil
}
