package main

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// liar is a peer that reports work it has not done.
type liar struct {
	byHand
	accepts   func(l *liar, ctx context.Context, messages []message) error
	processes func(l *liar, ctx context.Context, how settings, w *work) error
}

func (l *liar) accept(ctx context.Context, messages []message) error {
	if l.accepts == nil {
		return l.byHand.accept(ctx, messages)
	}
	return l.accepts(l, ctx, messages)
}

func (l *liar) process(ctx context.Context, how settings, w *work) error {
	if l.processes == nil {
		return l.byHand.process(ctx, how, w)
	}
	return l.processes(l, ctx, how, w)
}

// after processes honestly and then spoils it.
func after(statement string) func(*liar, context.Context, settings, *work) error {
	return func(l *liar, ctx context.Context, how settings, w *work) error {
		if err := l.byHand.process(ctx, how, w); err != nil {
			return err
		}
		tag, err := l.pool.Exec(ctx, statement)
		if err == nil && tag.RowsAffected() == 0 {
			err = errors.New("nothing was spoilt")
		}
		return err
	}
}

var liars = map[string]struct {
	cases string
	liar  liar
}{
	"a processor that does nothing": {"drain-each-32", liar{processes: func(*liar, context.Context, settings, *work) error { return nil }}},
	"an effect that is there twice": {"drain-each-32", liar{processes: after(
		`INSERT INTO effects SELECT * FROM effects LIMIT 1`)}},
	"one effect twice and another not at all": {"drain-each-32", liar{processes: after(`
		UPDATE effects SET (message_id, account, cents) = (SELECT message_id, account, cents FROM effects ORDER BY message_id LIMIT 1)
		WHERE message_id = (SELECT max(message_id) FROM effects)`)}},
	"an effect with another amount": {"drain-each-32", liar{processes: after(
		`UPDATE effects SET cents = cents + 1 WHERE message_id = (SELECT max(message_id) FROM effects)`)}},
	"a message that is not finished": {"drain-each-32", liar{processes: after(
		`UPDATE inbox_messages SET status = 0, processed_at = NULL WHERE id = (SELECT max(id) FROM inbox_messages)`)}},
	"an accept that stores nothing": {"accept-single-16", liar{accepts: func(*liar, context.Context, []message) error { return nil }}},
	"an accept that loses one of a hundred": {"accept-batch-100", liar{accepts: func(l *liar, ctx context.Context, messages []message) error {
		return l.byHand.accept(ctx, messages[1:])
	}}},
	"an effect that is missing from the latencies": {"latency-500", liar{processes: after(
		`DELETE FROM effects WHERE message_id = (SELECT max(message_id) FROM effects)`)}},
}

func TestNoRateIsPrintedForAPeerThatLies(t *testing.T) {
	t.Parallel()
	server := testServer(t)
	for name, test := range liars {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(server, tinyScale, testLog{t})
			b.profiles = maps.Clone(profiles)
			b.profiles[watermillPeer] = profile{share: 1, workers: []int{1}, batch: 32, new: func() peer {
				l := test.liar
				return &l
			}}
			b.peers = regexp.MustCompile("^(watermill-sql|by-hand)$")
			records, err := b.run(t.Context(), regexp.MustCompile("^"+test.cases+"$"))
			if !errors.Is(err, errRefused) {
				t.Errorf("error: %v", err)
			}
			var table, lines bytes.Buffer
			if err := errors.Join(writeTable(&table, records), writeJSON(&lines, records)); err != nil {
				t.Fatal(err)
			}
			for _, text := range []string{table.String(), lines.String()} {
				if strings.Contains(text, watermillPeer) {
					t.Errorf("the liar has a figure:\n%s", text)
				}
				if !strings.Contains(text, byHandPeer) {
					t.Errorf("its neighbour has none:\n%s", text)
				}
			}
		})
	}
}

func TestAServerThatDoesNotWaitForTheDiskIsRefused(t *testing.T) {
	t.Parallel()
	if err := testServer(t).check(t.Context()); err == nil || !strings.Contains(err.Error(), "fsync = off") {
		t.Errorf("error: %v", err)
	}
}

func TestTheBestNumberOfWorkersIsChosenOnce(t *testing.T) {
	t.Parallel()
	b := newBench(testServer(t), tinyScale, testLog{t})
	b.scale.tuneRows = 200
	for range 2 {
		d, err := b.drainOf(t.Context(), byHandPeer, 100, 32, false)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(profiles[byHandPeer].workers, d.how.workers) || d.how.workers != b.best["by-hand/32/false"] {
			t.Errorf("%d workers, chosen: %v", d.how.workers, b.best)
		}
		b.server = nil // nothing is measured again
	}
}
