package main

import (
	"context"
	"fmt"
	"time"
)

// sqliteWatch is how often a reader looks for new effects, which is how exactly
// latency is known on SQLite: it keeps no commit times.
const sqliteWatch = 500 * time.Microsecond

// sqliteLatency is latency with one process that accepts and processes.
func sqliteLatency(name string, process sqlitePeer, rate int, scale scale) contender {
	how := settings{batch: 32, workers: 1}
	n := max(int(float64(rate)*scale.seconds), 1)
	open := func(ctx context.Context) (trial, error) {
		f, err := openSQLite(ctx)
		if err != nil {
			return trial{}, err
		}
		return trial{
			prepare: f.clear,
			run: func(ctx context.Context) ([]figure, error) {
				return sqliteLatencyOnce(ctx, f, process, how, newMessages(latencyWarm+n), rate, scale.patience)
			},
			close: f.close,
		}, nil
	}
	return contender{peer: name, n: n, note: how.String(), open: open}
}

func sqliteLatencyOnce(ctx context.Context, f *sqliteFile, process sqlitePeer, how settings, messages []message, rate int, patience time.Duration) ([]figure, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	wake := make(chan struct{}, 1)
	times := map[string]time.Time{}
	stopWatch := background(ctx, func(ctx context.Context) error { return f.watch(ctx, len(messages), times) })
	answered, err := whileProcessing(ctx, func(ctx context.Context) error {
		return process(ctx, f, how, newWork(len(messages), f.committed), wake)
	}, func() ([]time.Time, error) {
		return sendSteadily(ctx, messages, rate, func(ctx context.Context, m message) error {
			err := acceptInto(ctx, f.repo, []message{m})
			select {
			case wake <- struct{}{}:
			default:
			}
			return err
		})
	})
	time.Sleep(10 * sqliteWatch)
	if failure := stopWatch(); err == nil {
		err = failure
	}
	if err == nil {
		err = f.verify(ctx, messages)
	}
	if err != nil {
		return nil, err
	}
	var delays []time.Duration
	for i := latencyWarm; i < len(messages); i++ {
		at, ok := times[messages[i].ID]
		if !ok {
			return nil, fmt.Errorf("%w: no effect of message %d", errRefused, i)
		}
		delays = append(delays, at.Sub(answered[i]))
	}
	return percentiles(delays), nil
}

// watch notes when it first sees each effect, until it has seen n.
func (f *sqliteFile) watch(ctx context.Context, n int, times map[string]time.Time) error {
	var last int64
	for len(times) < n && ctx.Err() == nil {
		rows, err := f.db.DB.QueryContext(ctx, "SELECT rowid, message_id FROM effects WHERE rowid > ?", last)
		if err != nil {
			return err
		}
		now := time.Now()
		for rows.Next() {
			var id string
			if err := rows.Scan(&last, &id); err != nil {
				return err
			}
			times[id] = now
		}
		if err := rows.Err(); err != nil {
			return err
		}
		time.Sleep(sqliteWatch)
	}
	return nil
}
