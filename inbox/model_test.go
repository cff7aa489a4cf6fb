package inbox_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/uptrace/bun"
	"pgregory.net/rapid"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/inbox/inboxtest"
	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/mediator"
)

const (
	modelAttempts = 3
	modelDelay    = 10 * time.Minute // that a handler asks for
	modelBackoff  = time.Hour        // the ceiling of the delay where it does not
	modelWindow   = 24 * time.Hour   // of the memory for duplicates
)

// life is one message in the model.
type life struct {
	ID        int64 // accept order
	Key       string
	Holds     bool // its place in its key
	Status    inbox.StatusKind
	Discarded bool
	Attempts  int
	body      string
	due       time.Time
	unsure    bool // due is only the latest possible time
	received  time.Time
	settled   time.Time // when it was processed or discarded
}

// model says what an inbox should do: the whole life of its messages, without a
// database.
type model struct {
	now     time.Time
	paused  bool
	lives   map[string]*life
	effects map[string]int
	verdict map[string]string // what the handler does
}

func (l *life) unfinished() bool { return l.Status != inbox.Processed && !l.Discarded }

// accept returns the outcome.
func (m *model) accept(id, key, body string, due time.Time) inbox.OutcomeKind {
	if l := m.lives[id]; l != nil {
		if l.body == body {
			return inbox.Duplicate
		}
		return inbox.Mismatch
	}
	if due.Before(m.now) {
		due = m.now
	}
	m.lives[id] = &life{Key: key, Holds: key != "", Status: inbox.Pending, body: body, due: due, received: m.now}
	return inbox.Stored
}

// ready reports that a message may be processed now.
func (m *model) ready(l *life) bool {
	if m.paused || l.Status != inbox.Pending || l.due.After(m.now) {
		return false
	}
	for _, earlier := range m.lives {
		if l.Key != "" && earlier.Key == l.Key && earlier.ID < l.ID && earlier.unfinished() && earlier.Holds {
			return false
		}
	}
	return true
}

// run is what one run of the handler does to a message.
func (m *model) run(id string) {
	l := m.lives[id]
	later := func(delay time.Duration) { l.due, l.unsure = m.now.Add(delay), false }
	fail := func(delay time.Duration, permanent bool) {
		l.Attempts++
		if later(delay); permanent || l.Attempts >= modelAttempts {
			l.Status = inbox.Dead
		}
	}
	switch m.verdict[id] {
	case "fail", "panic":
		fail(modelBackoff, false)
		l.unsure = true
	case "later":
		fail(modelDelay, false)
	case "again":
		fail(0, false)
	case "permanent":
		fail(0, true)
	case "postpone":
		later(modelDelay)
	default:
		l.Status, l.settled = inbox.Processed, m.now
		m.effects[id]++
	}
}

// drain processes what is due until nothing is.
func (m *model) drain() {
	for again := true; again; {
		again = false
		for _, id := range slices.Sorted(maps.Keys(m.lives)) {
			if m.ready(m.lives[id]) {
				m.run(id)
				again = true
			}
		}
	}
}

func (m *model) retry(l *life) error {
	switch {
	case !l.unfinished():
		return inbox.ErrNotRetryable
	case l.Status == inbox.Dead:
		l.Status, l.Attempts, l.Holds, l.due = inbox.Pending, 0, l.Key != "", m.now
	case l.due.After(m.now):
		l.due = m.now
	}
	l.unsure = false
	return nil
}

func (m *model) discard(l *life) error {
	if !l.unfinished() {
		return inbox.ErrNotDiscardable
	}
	l.Status, l.Discarded, l.settled = inbox.Dead, true, m.now
	return nil
}

func (m *model) skip(key string) error {
	err := inbox.ErrNotFound
	for _, l := range m.lives {
		if l.Key == key && l.Holds && l.Status == inbox.Dead && !l.Discarded {
			l.Holds, err = false, nil
		}
	}
	return err
}

func (m *model) sweep() {
	cutoff := m.now.Add(-modelWindow)
	maps.DeleteFunc(m.lives, func(_ string, l *life) bool {
		return !l.unfinished() && l.received.Before(cutoff) && l.settled.Before(cutoff)
	})
}

// modelled is an inbox beside its model.
type modelled struct {
	model
	db     *bun.DB
	clock  *inboxtest.Clock
	config inbox.Config
	names  *inbox.NameMap
	repo   *inbox.Repository
	proc   *inbox.Processor
}

func newModelled(t testing.TB, db *bun.DB) *modelled {
	t.Helper()
	s := &modelled{db: db, names: inbox.NewNameMap()}
	s.clock = inboxtest.NewClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	s.config = inbox.Config{Clock: s.clock.Now, Retention: inbox.Retention{DedupeWindow: modelWindow, PayloadRetention: -1}}
	inbox.Register[task](s.names, "task")
	requests := mediator.NewRequestMap()
	mediator.BindCommand(requests, s.handle)
	var err error
	if s.repo, err = inbox.NewRepository(db, s.names, s.config); err != nil {
		t.Fatal(err)
	}
	if err := s.repo.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), `CREATE TABLE effects (job TEXT NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	s.proc, err = inbox.NewProcessor(s.repo, inbox.ProcessorConfig{
		Requests:    mediator.NewRequestMediator(requests),
		BatchSize:   4,
		MaxAttempts: modelAttempts,
		Backoff:     inbox.Backoff{Base: modelBackoff, Max: modelBackoff},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// handle writes first, so that every verdict but success has something to undo.
func (s *modelled) handle(ctx context.Context, _ task) error {
	m, _ := inbox.FromContext(ctx)
	if _, err := inbox.DB(ctx, s.db).ExecContext(ctx, `INSERT INTO effects (job) VALUES (?)`, m.MessageID); err != nil {
		return err
	}
	boom := errors.New("boom")
	switch s.verdict[m.MessageID] {
	case "fail":
		return boom
	case "panic":
		panic(boom)
	case "later":
		return inbox.RetryAfter(modelDelay, boom)
	case "again":
		return inbox.RetryAfter(0, boom)
	case "permanent":
		return inbox.Permanent(boom)
	case "postpone":
		return inbox.Postpone(modelDelay)
	}
	return nil
}

// reset begins a new life.
func (s *modelled) reset(t *rapid.T, ctx context.Context) {
	s.model = model{now: s.clock.Now(), lives: map[string]*life{}, effects: map[string]int{}, verdict: map[string]string{}}
	for _, table := range []string{"inbox_queue", "inbox_messages", "inbox_attempts", "inbox_pauses", "effects"} {
		if _, err := s.db.ExecContext(ctx, `DELETE FROM `+table); err != nil {
			t.Fatal(err)
		}
	}
}

// any draws a message that is there.
func (s *modelled) any(t *rapid.T) (string, *life) {
	if len(s.lives) == 0 {
		t.Skip("no message")
	}
	id := rapid.SampledFrom(slices.Sorted(maps.Keys(s.lives))).Draw(t, "id")
	return id, s.lives[id]
}

// step processes a few messages in a transaction of the caller's own, and commits
// or dies before that.
func (s *modelled) step(t *rapid.T, ctx context.Context) {
	limit, dies := rapid.IntRange(1, 3).Draw(t, "limit"), rapid.Bool().Draw(t, "dies")
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	claimed, err := s.repo.GetMany(ctx, tx, limit)
	if err != nil {
		t.Fatal(err)
	}
	if len(claimed) == 0 {
		for id, l := range s.lives {
			if s.ready(l) {
				t.Fatalf("%s is not claimed", id)
			}
		}
		return
	}
	if first := claimed[0].MessageID; len(claimed) > limit || !s.ready(s.lives[first]) {
		t.Fatalf("%s and %d more are claimed", first, len(claimed)-1)
	}
	for _, c := range claimed {
		if err := s.proc.Process(ctx, tx, c); err != nil {
			t.Fatal(err)
		}
	}
	if dies {
		return
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	s.proc.Committed(ctx, claimed...)
	for _, c := range claimed { // those behind one that has failed are left
		if s.ready(s.lives[c.MessageID]) {
			s.run(c.MessageID)
		}
	}
}

func (s *modelled) actions(ctx context.Context) map[string]func(*rapid.T) {
	ids := []string{"a", "b", "c", "d", "e", "f"}
	keys := []string{"", "k", "l"}
	expect := func(t *rapid.T, what string, got, want error) {
		if !errors.Is(got, want) {
			t.Fatalf("%s: %v, want %v", what, got, want)
		}
	}
	return map[string]func(*rapid.T){
		"accept": func(t *rapid.T) {
			var entries []inbox.Entry
			for range rapid.IntRange(1, 3).Draw(t, "batch") {
				entries = append(entries, inbox.Entry{
					MessageID:   rapid.SampledFrom(ids).Draw(t, "id"),
					OrderingKey: rapid.SampledFrom(keys).Draw(t, "key"),
					Message:     task{rapid.SampledFrom([]string{"x", "x", "y"}).Draw(t, "body")},
					Due:         s.now.Add(rapid.SampledFrom([]time.Duration{-time.Hour, 0, 0, time.Hour}).Draw(t, "due")),
				})
			}
			outcomes, err := s.repo.Accept(ctx, entries)
			if err != nil {
				t.Fatal(err)
			}
			for i, e := range entries {
				want := s.model.accept(e.MessageID, e.OrderingKey, e.Message.(task).ID, e.Due)
				if outcomes[i].Kind != want {
					t.Fatalf("entry %d is %v, want %v", i, outcomes[i].Kind, want)
				}
				if want == inbox.Stored {
					s.lives[e.MessageID].ID = outcomes[i].ID
				}
			}
		},
		"script": func(t *rapid.T) {
			id := rapid.SampledFrom(ids).Draw(t, "id")
			s.verdict[id] = rapid.SampledFrom([]string{"", "", "fail", "panic", "later", "again", "permanent", "postpone"}).Draw(t, "verdict")
		},
		"drain": func(t *rapid.T) {
			if _, err := s.proc.Drain(ctx); err != nil {
				t.Fatal(err)
			}
			s.model.drain()
		},
		"step": func(t *rapid.T) { s.step(t, ctx) },
		"advance": func(t *rapid.T) {
			d := rapid.SampledFrom([]time.Duration{time.Second, modelDelay, modelBackoff, 13 * time.Hour}).Draw(t, "by")
			s.clock.Advance(d)
			s.now = s.clock.Now()
		},
		"retry": func(t *rapid.T) {
			id, l := s.any(t)
			expect(t, "retry "+id, s.repo.Retry(ctx, l.ID), s.model.retry(l))
		},
		"discard": func(t *rapid.T) {
			id, l := s.any(t)
			expect(t, "discard "+id, s.repo.Discard(ctx, l.ID), s.model.discard(l))
		},
		"skip key": func(t *rapid.T) {
			key := rapid.SampledFrom(keys).Draw(t, "key")
			_, err := s.repo.SkipKey(ctx, key)
			want := inbox.ErrNotFound
			if key != "" {
				want = s.skip(key)
			}
			expect(t, "skip "+key, err, want)
		},
		"pause or resume": func(t *rapid.T) {
			change := s.repo.Pause
			if s.paused = !s.paused; !s.paused {
				change = s.repo.Resume
			}
			if err := change(ctx, "task"); err != nil {
				t.Fatal(err)
			}
		},
		"sweep": func(t *rapid.T) {
			fresh, err := inbox.NewRepository(s.db, s.names, s.config) // one that remembers no earlier sweep
			if err != nil {
				t.Fatal(err)
			}
			if _, err := fresh.Sweep(ctx); err != nil {
				t.Fatal(err)
			}
			s.model.sweep()
		},
		"": func(t *rapid.T) { s.compare(t, ctx) },
	}
}

// compare holds the tables against the model.
func (s *modelled) compare(t *rapid.T, ctx context.Context) {
	type row struct {
		MessageID   string
		ID          int64
		OrderingKey string
		Status      int
		Discarded   bool
		Attempts    int
		Queued      bool
		Place       string
	}
	var rows []row
	err := s.db.NewRaw(`
		SELECT m.message_id, m.id, m.ordering_key, m.status, m.discarded_at IS NOT NULL AS discarded, m.attempts,
			q.id IS NOT NULL AS queued, COALESCE(q.ordering_key, '') AS place
		FROM inbox_messages m LEFT JOIN inbox_queue q ON q.id = m.id`).Scan(ctx, &rows)
	if err != nil {
		t.Fatal(err)
	}
	got, want := map[string]row{}, map[string]row{}
	for _, r := range rows {
		got[r.MessageID] = r
	}
	for id, l := range s.lives {
		r := row{id, l.ID, l.Key, int(l.Status) - 1, l.Discarded, l.Attempts, l.unfinished(), ""}
		if l.unfinished() && l.Holds {
			r.Place = l.Key
		}
		want[id] = r
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("messages (-model +inbox):\n%s", diff)
	}
	var effects []struct {
		Job string
		N   int
	}
	if err := s.db.NewRaw(`SELECT job, count(*) AS n FROM effects GROUP BY job`).Scan(ctx, &effects); err != nil {
		t.Fatal(err)
	}
	written := map[string]int{}
	for _, e := range effects {
		written[e.Job] = e.N
	}
	if diff := cmp.Diff(s.effects, written); diff != "" {
		t.Fatalf("effects (-model +inbox):\n%s", diff)
	}
	for id, l := range s.lives {
		if l.Status == inbox.Pending {
			s.compareDue(t, ctx, id, l)
		}
	}
}

// compareDue adopts a due time that jitter has chosen.
func (s *modelled) compareDue(t *rapid.T, ctx context.Context, id string, l *life) {
	status, err := s.repo.Status(ctx, inbox.Identity{MessageID: id, Name: "task"})
	if err != nil {
		t.Fatal(err)
	}
	if l.unsure {
		if status.Due.Before(l.due.Add(-modelBackoff)) || status.Due.After(l.due) {
			t.Fatalf("%s is due at %v, want it within %v before %v", id, status.Due, modelBackoff, l.due)
		}
		l.due, l.unsure = status.Due, false
	}
	if !status.Due.Equal(l.due) {
		t.Fatalf("%s is due at %v, want %v", id, status.Due, l.due)
	}
}

// TestALifeLikeTheModels drives an inbox and its model through the same random
// life and compares them after every step.
func TestALifeLikeTheModels(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		open  func(testing.TB) *bun.DB
		lives int // at most
	}{"SQLite": {testdb.SQLite, 1000}, "PostgreSQL": {testdb.PGX, 15}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newModelled(t, c.open(t))
			lives := 0
			rapid.Check(t, func(rt *rapid.T) {
				if lives++; lives > c.lives {
					return
				}
				s.reset(rt, t.Context())
				rt.Repeat(s.actions(t.Context()))
			})
		})
	}
}

// The first message of a key is due after its followers, which are held up by it.
func TestGetManyFindsTheFirstOfAKeyBehindItsFollowers(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(testing.TB) *bun.DB{"SQLite": testdb.SQLite, "PostgreSQL": testdb.PGX} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newModelled(t, open(t))
			for _, id := range []string{"first", "second", "third"} {
				entry := inbox.Entry{MessageID: id, OrderingKey: "k", Message: task{id}}
				if id == "first" {
					entry.Due = s.clock.Now().Add(time.Hour)
				}
				if _, err := s.repo.Accept(t.Context(), []inbox.Entry{entry}); err != nil {
					t.Fatal(err)
				}
			}
			s.clock.Advance(time.Hour)
			for _, limit := range []int{1, 2, 3} {
				tx, err := s.db.BeginTx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				claimed, err := s.repo.GetMany(t.Context(), tx, limit)
				if err != nil || len(claimed) == 0 || claimed[0].MessageID != "first" {
					t.Errorf("with a limit of %d: %d messages, %v; want the first of the key", limit, len(claimed), err)
				}
				_ = tx.Rollback()
			}
		})
	}
}
