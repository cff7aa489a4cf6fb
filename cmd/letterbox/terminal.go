package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// isTerminal reports whether a person sits behind a stream.
func isTerminal(stream any) bool {
	file, ok := stream.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(file.Fd()))
}

// confirm asks before something is changed that cannot be taken back. Without a
// terminal, or with a no, nothing is to be done.
func (a *app) confirm(ctx context.Context, yes bool, question string) error {
	if yes {
		return nil
	}
	if !isTerminal(a.stdin) || !isTerminal(a.stderr) {
		return &usageError{
			err:  fmt.Errorf("this needs a yes, and there is no terminal to ask: %s", question),
			next: "Say --yes, or look first: --dry-run. Nothing was changed.",
		}
	}
	fmt.Fprintf(a.stderr, "%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() { answer <- a.readLine() }() // ends with the program, at the latest
	select {
	case line := <-answer:
		if line = strings.ToLower(strings.TrimSpace(line)); line == "y" || line == "yes" {
			return nil
		}
		return errors.New("not confirmed: nothing was changed")
	case <-ctx.Done():
		fmt.Fprintln(a.stderr)
		return ctx.Err()
	}
}

// readLine takes no more than a line from standard input.
func (a *app) readLine() string {
	var line []byte
	one := make([]byte, 1)
	for {
		n, err := a.stdin.Read(one)
		if n > 0 && one[0] == '\n' || err != nil {
			return string(line)
		}
		line = append(line, one[:n]...)
	}
}

// progress shows how far long work has come. nil shows nothing.
type progress struct{ bar *progressbar.ProgressBar }

// progress starts one; a total of -1 is not known. It is for people only.
func (a *app) progress(what string, total int64) *progress {
	if !isTerminal(a.stderr) {
		return nil
	}
	return &progress{progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(a.stderr),
		progressbar.OptionSetDescription(what),
		progressbar.OptionSetWidth(30),
		progressbar.OptionShowCount(),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSetRenderBlankState(true),
	)}
}

func (p *progress) set(done int64) {
	if p != nil {
		_ = p.bar.Set64(done)
	}
}

// end leaves the bar where it is, and the cursor below it.
func (a *app) end(p *progress) {
	if p != nil {
		_ = p.bar.Exit()
		fmt.Fprintln(a.stderr)
	}
}
