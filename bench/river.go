package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverQueue is github.com/riverqueue/river with its fastest driver; the worker
// completes the job in the transaction of its effect.
type riverQueue struct {
	tuned  bool
	unique bool // duplicates are dropped, by the id
	pool   *pgxpool.Pool
	insert *river.Client[pgx.Tx]
}

func newRiverDefault() peer { return &riverQueue{} }
func newRiverTuned() peer   { return &riverQueue{tuned: true} }

// riverArgs is a message; the tag makes its id the unique part.
type riverArgs struct {
	ID      string `json:"id" river:"unique"`
	Account string `json:"account"`
	Cents   int64  `json:"cents"`
	Note    string `json:"note"`
}

func (riverArgs) Kind() string { return messageName }

func (r *riverQueue) open(ctx context.Context, dsn string) (err error) {
	if r.pool, err = openPool(ctx, dsn, 220); err != nil {
		return err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(r.pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	r.insert, err = river.NewClient(riverpgxv5.New(r.pool), &river.Config{Logger: slog.New(slog.DiscardHandler)})
	return err
}

func (r *riverQueue) accept(ctx context.Context, messages []message) error {
	options := &river.InsertOpts{}
	if r.unique {
		options.UniqueOpts = river.UniqueOpts{ByArgs: true}
	}
	if len(messages) == 1 {
		_, err := r.insert.Insert(ctx, riverArgsOf(&messages[0]), options)
		return err
	}
	params := make([]river.InsertManyParams, len(messages))
	for i := range messages {
		params[i] = river.InsertManyParams{Args: riverArgsOf(&messages[i]), InsertOpts: options}
	}
	_, err := r.insert.InsertMany(ctx, params)
	return err
}

func riverArgsOf(m *message) riverArgs { return riverArgs{m.ID, m.Account, m.Cents, m.Note} }

func (r *riverQueue) process(ctx context.Context, how settings, w *work) error {
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{pool: r.pool, work: w})
	config := &river.Config{
		Logger:  slog.New(slog.DiscardHandler),
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: how.workers}},
		Workers: workers,
	}
	if r.tuned {
		config.FetchCooldown, config.FetchPollInterval = river.FetchCooldownMin, river.FetchPollIntervalMin
	}
	client, err := river.NewClient(riverpgxv5.New(r.pool), config)
	if err != nil {
		return err
	}
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	err = w.wait(ctx)
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	if failure := client.Stop(stopping); failure != nil && err == nil {
		err = failure
	}
	return err
}

type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	pool *pgxpool.Pool
	work *work
}

func (w *riverWorker) Work(ctx context.Context, job *river.Job[riverArgs]) error {
	return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		m := message{ID: job.Args.ID, Account: job.Args.Account, Cents: job.Args.Cents}
		if err := handle(ctx, tx, &m, w.work); err != nil {
			return err
		}
		_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		return err
	})
}

func (r *riverQueue) counts() counts {
	return counts{
		stored:     `SELECT count(*) FROM river_job`,
		unfinished: `SELECT count(*) FROM river_job WHERE state <> 'completed'`,
	}
}

func (r *riverQueue) close() {
	if r.pool != nil {
		r.pool.Close()
	}
}
