package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
)

const demoTimeout = 2 * time.Minute

// runDemo starts API and processor on a database of their own, plays the
// provider, and checks what came of it against the data file.
func runDemo(ctx context.Context, dsn string, stdout io.Writer, log *slog.Logger) (err error) {
	ctx, cancel := context.WithTimeout(ctx, demoTimeout)
	defer cancel()
	plan, err := newPlan()
	if err != nil {
		return err
	}
	db, remove, err := openTemporary(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	app, err := newApp(ctx, db, log)
	if err != nil {
		return err
	}
	// Short, so that those for unknown accounts are dead within a second.
	processor, err := app.processor(inbox.Backoff{Base: 20 * time.Millisecond, Max: 200 * time.Millisecond})
	if err != nil {
		return err
	}
	listener, err := listen(ctx, "127.0.0.1:0")
	if err != nil {
		return err
	}
	var got books
	running, stop := context.WithCancel(ctx)
	err = together(running,
		processor.Run,
		func(ctx context.Context) error { return app.serveHTTP(ctx, listener, newOperators()) },
		func(ctx context.Context) error {
			defer stop()
			return tell(ctx, "http://"+listener.Addr().String(), plan, &got, stdout)
		})
	stop()
	if err != nil {
		return err
	}
	if err := got.read(ctx, db); err != nil {
		return err
	}
	return conclude(stdout, plan.want, got)
}

// tell is the story: deliver everything while the processor works, then wait
// until it has nothing left to do.
func tell(ctx context.Context, url string, plan *plan, got *books, stdout io.Writer) error {
	fmt.Fprintf(stdout, "%d notifications for %d accounts in %d requests, %d malformed requests, from %d clients at once\n",
		plan.want.Deliveries, len(plan.want.Balances), len(plan.before)+len(plan.after)-plan.want.Rejected, plan.want.Rejected, clients)
	p := &provider{url: url, client: &http.Client{
		Timeout:   30 * time.Second,
		Transport: &http.Transport{MaxIdleConnsPerHost: clients},
	}}
	defer p.client.CloseIdleConnections()
	began := time.Now()
	for _, requests := range [][]request{plan.before, plan.after} {
		if err := p.deliver(ctx, requests, stdout); err != nil {
			return err
		}
	}
	fmt.Fprintf(stdout, "all answered after %v\n", time.Since(began).Round(time.Millisecond))
	*got = p.counted
	if err := p.awaitDrained(ctx, got); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "all processed after %v\n", time.Since(began).Round(time.Millisecond))
	return nil
}

// awaitDrained waits until nothing is pending.
func (p *provider) awaitDrained(ctx context.Context, got *books) error {
	for {
		s, err := p.stats(ctx)
		if err != nil {
			return fmt.Errorf("wait until all is processed: %w", err)
		}
		got.Pending, got.Processed, got.Dead = s.Pending, s.Processed, s.Dead
		if s.Pending == 0 {
			return nil
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("%d notifications are still pending: %w", s.Pending, err)
		}
	}
}

func (p *provider) stats(ctx context.Context) (s stats, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/inbox/stats", nil)
	if err != nil {
		return s, err
	}
	answer, err := p.client.Do(req)
	if err != nil {
		return s, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return s, fmt.Errorf("GET /inbox/stats: %s", answer.Status)
	}
	return s, json.NewDecoder(answer.Body).Decode(&s)
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
