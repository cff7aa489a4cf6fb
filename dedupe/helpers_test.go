package dedupe_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/dedupe"
)

var (
	errDown   = errors.New("the store is down")
	errFailed = errors.New("as told")
)

// scripted is a Memory whose calls a test can replace.
type scripted struct {
	*dedupe.Memory

	mu      sync.Mutex
	log     []string // the calls, in the order of their ends
	reserve func(ctx context.Context, call int) (dedupe.Reservation, error)
	confirm func(ctx context.Context, call int) error
	release func(ctx context.Context, call int) error
	counts  map[string]int
}

func newScripted() *scripted {
	return &scripted{Memory: dedupe.NewMemory(dedupe.MemoryConfig{}), counts: map[string]int{}}
}

func (s *scripted) begin(name string) (call int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[name]++
	return s.counts[name]
}

func (s *scripted) end(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, name)
}

func (s *scripted) calls() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.log, " ")
}

func (s *scripted) Reserve(ctx context.Context, key dedupe.Key, token string, lease time.Duration) (dedupe.Reservation, error) {
	call := s.begin("reserve")
	defer s.end("reserve")
	if s.reserve != nil {
		if found, err := s.reserve(ctx, call); found.State != 0 || err != nil {
			return found, err
		}
	}
	return s.Memory.Reserve(ctx, key, token, lease)
}

func (s *scripted) Confirm(ctx context.Context, key dedupe.Key, token string, ttl time.Duration) (bool, error) {
	call := s.begin("confirm")
	defer s.end("confirm")
	if s.confirm != nil {
		if err := s.confirm(ctx, call); err != nil {
			return false, err
		}
	}
	return s.Memory.Confirm(ctx, key, token, ttl)
}

func (s *scripted) Release(ctx context.Context, key dedupe.Key, token string) (bool, error) {
	call := s.begin("release")
	defer s.end("release")
	if s.release != nil {
		if err := s.release(ctx, call); err != nil {
			return false, err
		}
	}
	return s.Memory.Release(ctx, key, token)
}

func newGuard(t testing.TB, config dedupe.Config) *dedupe.Guard {
	t.Helper()
	guard, err := dedupe.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return guard
}

// logBuffer collects log lines.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

// count returns the number of lines that hold the text.
func (b *logBuffer) count(text string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range strings.Lines(b.text.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// succeed is a function to guard that counts its runs.
func succeed(runs *int) func(context.Context) error {
	return func(context.Context) error { *runs++; return nil }
}

// want checks what Do returned.
func want(t *testing.T, wantRan bool, wantErr error) func(ran bool, err error) {
	return func(ran bool, err error) {
		t.Helper()
		if ran != wantRan || !errors.Is(err, wantErr) {
			t.Fatalf("got ran %v, %v; want %v, %v", ran, err, wantRan, wantErr)
		}
	}
}

// wantStats compares all counters.
func wantStats(t *testing.T, guard *dedupe.Guard, want dedupe.Stats) {
	t.Helper()
	if got := guard.Stats(); got != want {
		t.Errorf("stats\n got %+v\nwant %+v", got, want)
	}
}
