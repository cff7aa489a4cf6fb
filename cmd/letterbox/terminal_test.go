//go:build unix

package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/letterbox-go/letterbox/inbox"
)

// screen is a pseudo-terminal with a person before it.
type screen struct {
	master, tty *os.File
	mu          sync.Mutex
	seen        bytes.Buffer
}

func newScreen(t *testing.T) *screen {
	t.Helper()
	master, tty, err := pty.Open()
	if err != nil {
		t.Skipf("no pseudo-terminal here: %v", err)
	}
	s := &screen{master: master, tty: tty}
	done := make(chan struct{})
	go func() {
		defer close(done)
		part := make([]byte, 4096)
		for {
			n, err := master.Read(part)
			s.mu.Lock()
			s.seen.Write(part[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_, _ = master.WriteString("\n") // frees who still waits for an answer
		_ = tty.Close()
		_ = master.Close()
		<-done
	})
	return s
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen.String()
}

// waits until a text is on the screen.
func (s *screen) waits(t *testing.T, part string) {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for !strings.Contains(s.text(), part) {
		if time.Now().After(deadline) {
			t.Fatalf("%q does not appear:\n%q", part, s.text())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// call runs the command with all its streams on the terminal, and types when
// the prompt is there.
func (s *screen) call(t *testing.T, ctx context.Context, p *place, prompt, typed string, args ...string) int {
	t.Helper()
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, append([]string{"--database-url", p.url, "--actor", "eve"}, args...), s.tty, s.tty, s.tty)
	}()
	if prompt != "" {
		s.waits(t, prompt)
		if _, err := s.master.WriteString(typed); err != nil {
			t.Fatal(err)
		}
	}
	return <-code
}

func TestTerminal(t *testing.T) {
	t.Parallel()
	places(t, func(t *testing.T, p *place) {
		p.fill(t)
		ctx := t.Context()
		dead := func() int64 {
			stats, err := p.repo.Stats(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return stats.Dead
		}

		s := newScreen(t)
		if code := s.call(t, ctx, p, "Discard 1 message? They will never run, and that cannot be undone. [y/N] ", "n\n", "discard", "6"); code != 1 || dead() != 3 {
			t.Errorf("after a no: code %d, %d dead\n%s", code, dead(), s.text())
		}
		s.waits(t, "nothing was changed")

		s = newScreen(t)
		if code := s.call(t, ctx, p, "[y/N] ", "y\n", "retry-all", "--source", "psp"); code != 0 || dead() != 1 {
			t.Errorf("after a yes: code %d, %d dead\n%s", code, dead(), s.text())
		}
		s.waits(t, "Retry 2 dead messages (source psp)? [y/N]")
		s.waits(t, "(2/2")
		s.waits(t, "100%")
		s.waits(t, "Retried 2 dead messages.")

		s = newScreen(t)
		interrupted, cancel := context.WithCancel(ctx)
		done := make(chan int, 1)
		go func() { done <- s.call(t, interrupted, p, "", "", "discard", "4") }()
		s.waits(t, "[y/N] ")
		cancel()
		if code := <-done; code != 1 || dead() != 1 {
			t.Errorf("after an interrupt: code %d, %d dead\n%s", code, dead(), s.text())
		}

		// Whatever is stored commands nothing.
		s = newScreen(t)
		for _, args := range [][]string{
			{"list"},
			{"list", "-o", "json"},
			{"show", "4", "--payload"},
			{"show", "1", "--payload"},
			{"show", "4", "--payload", "-o", "json"},
			{"export", "--payload"},
			{"doctor"},
			{"stats"},
		} {
			if code := s.call(t, ctx, p, "", "", args...); code > 1 {
				t.Errorf("%v: code %d", args, code)
			}
		}
		s.waits(t, "oldest due for")
		inertText(t, "screen", strings.ReplaceAll(s.text(), "\r\n", "\n"))
	})
}

func TestWatch(t *testing.T) {
	t.Parallel()
	p := sqlitePlace(t)
	p.fill(t)
	ctx, cancel := context.WithCancel(t.Context())
	s := newScreen(t)
	done := make(chan int, 1)
	go func() { done <- s.call(t, ctx, p, "", "", "stats", "--watch", "--interval", "5ms") }()
	s.waits(t, "3 (1 ordering key held up)")
	if err := p.repo.Discard(ctx, 6); err != nil {
		t.Fatal(err)
	}
	s.waits(t, "2 (1 ordering key held up)")
	cancel()
	if code := <-done; code != 0 {
		t.Errorf("code %d\n%s", code, s.text())
	}
	if !strings.Contains(s.text(), clearScreen) {
		t.Error("the screen is not cleared")
	}
}

func TestEditor(t *testing.T) {
	p := sqlitePlace(t)
	p.fill(t)
	editor := filepath.Join(t.TempDir(), "editor")
	script := "#!/bin/sh\nls -l \"$1\" > " + editor + ".mode\nprintf '{\"amount\":7}\\n' > \"$1\"\n"
	if err := os.WriteFile(editor, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("VISUAL", editor)
	s := newScreen(t)
	if code := s.call(t, t.Context(), p, "12 bytes instead of 10, and retry it? [y/N] ", "yes\n", "edit", "6"); code != 0 {
		t.Fatalf("code %d\n%s", code, s.text())
	}
	d, err := p.repo.Get(t.Context(), 6)
	if err != nil || string(d.Payload) != `{"amount":7}` || d.Kind != inbox.Pending {
		t.Errorf("%v %q %v", err, d.Payload, d.Kind)
	}
	mode, err := os.ReadFile(editor + ".mode")
	if err != nil || !strings.HasPrefix(string(mode), "-rw-------") {
		t.Errorf("the payload may be read by others: %v %s", err, mode)
	}
}
