package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/vgarvardt/gue/v5"
	"github.com/vgarvardt/gue/v5/adapter/pgxv5"
)

// gueSchema is migrations/schema.sql of gue v5.8.0.
const gueSchema = `
CREATE TABLE gue_jobs (
	job_id      TEXT        NOT NULL PRIMARY KEY,
	priority    SMALLINT    NOT NULL,
	run_at      TIMESTAMPTZ NOT NULL,
	job_type    TEXT        NOT NULL,
	args        BYTEA       NOT NULL,
	error_count INTEGER     NOT NULL DEFAULT 0,
	last_error  TEXT,
	queue       TEXT        NOT NULL,
	created_at  TIMESTAMPTZ NOT NULL,
	updated_at  TIMESTAMPTZ NOT NULL
);
CREATE INDEX idx_gue_jobs_selector ON gue_jobs (queue, run_at, priority)`

// gueQueue is github.com/vgarvardt/gue/v5 with the poll strategy RunAt: its
// priority strategy sorts the whole backlog for each job.
type gueQueue struct {
	pool   *pgxpool.Pool
	client *gue.Client
}

func newGue() peer { return &gueQueue{} }

func (g *gueQueue) open(ctx context.Context, dsn string) (err error) {
	if g.pool, err = openPool(ctx, dsn, 80); err != nil {
		return err
	}
	if _, err := g.pool.Exec(ctx, gueSchema); err != nil {
		return err
	}
	g.client, err = gue.NewClient(pgxv5.NewConnPool(g.pool))
	return err
}

func (g *gueQueue) accept(ctx context.Context, messages []message) error {
	if len(messages) == 1 {
		return g.client.Enqueue(ctx, &gue.Job{Type: messageName, Args: messages[0].encode()})
	}
	jobs := make([]*gue.Job, len(messages))
	for i := range messages {
		jobs[i] = &gue.Job{Type: messageName, Args: messages[i].encode()}
	}
	return g.client.EnqueueBatch(ctx, jobs)
}

func (g *gueQueue) process(ctx context.Context, how settings, w *work) error {
	handler := func(ctx context.Context, job *gue.Job) error {
		m, err := decode(job.Args)
		if err != nil {
			return err
		}
		tx, ok := pgxv5.UnwrapTx(job.Tx())
		if !ok {
			return errors.New("the job has no transaction of pgx")
		}
		return handle(ctx, tx, &m, w)
	}
	workers, err := gue.NewWorkerPool(g.client, gue.WorkMap{messageName: handler}, how.workers,
		gue.WithPoolPollStrategy(gue.RunAtPollStrategy), gue.WithPoolPollInterval(how.poll))
	if err != nil {
		return err
	}
	return w.until(ctx, workers.Run)
}

func (g *gueQueue) counts() counts {
	// Finished jobs are deleted: what is stored can only be said before a drain.
	return counts{stored: `SELECT count(*) FROM gue_jobs`, unfinished: `SELECT count(*) FROM gue_jobs`}
}

func (g *gueQueue) close() {
	if g.pool != nil {
		g.pool.Close()
	}
}
