package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"github.com/letterbox-go/letterbox/inbox"
)

const editLong = `Give a dead message another payload, and let it run again.

The payload comes from --file ("-": standard input), or from the editor in
VISUAL or EDITOR. This program knows no codecs: it only checks that the payload
is JSON, and --force takes anything. What the sender delivers again is still a
duplicate of the message.`

func (a *app) edit() *cobra.Command {
	var ask assent
	var file string
	var force bool
	cmd := &cobra.Command{
		Use: "edit ID", Short: "Give a dead message another payload, and retry it", Long: editLong, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			ids, err := parseIDs(cmd, args)
			if err != nil {
				return err
			}
			repo, closeDB, err := a.open(ctx, inbox.Config{MaxPayload: 64 << 20, MaxBatchBytes: 64 << 20})
			if err != nil {
				return err
			}
			defer closeDB()
			d, err := repo.Get(ctx, ids[0])
			if err != nil {
				return err
			}
			if d.Kind != inbox.Dead || d.Discarded {
				return fmt.Errorf("%w: it is %s, and only a dead message may be edited", inbox.ErrNotRetryable, statusOf(&d.Summary))
			}
			payload, err := a.newPayload(ctx, cmd, file, d.Payload)
			if err != nil {
				return err
			}
			if bytes.Equal(payload, d.Payload) {
				return &stepError{err: errors.New("the payload is the same: nothing was changed"), next: "letterbox retry ID lets it run again as it is."}
			}
			if !force && !isJSON(payload) {
				return &inbox.PayloadError{Name: d.Name, Err: errors.New("not JSON")}
			}
			change := fmt.Sprintf("the payload of message %d: %d bytes instead of %d", d.ID, len(payload), len(d.Payload))
			if ask.dryRun {
				return a.done("edit", true, 1, "Would change "+change+".")
			}
			if err := a.confirm(ctx, ask.yes, "Change "+change+", and retry it?"); err != nil {
				return err
			}
			if err := repo.EditAndRetry(ctx, d.ID, payload, inbox.EditOptions{Force: force}); err != nil {
				return err
			}
			return a.done("edit", false, 1, "Changed "+change+".")
		},
	}
	ask.add(cmd, true)
	cmd.Flags().StringVar(&file, "file", "", `take the payload from this file; "-": standard input`)
	cmd.Flags().BoolVar(&force, "force", false, "accept a payload that is not JSON")
	return cmd
}

// newPayload reads the payload, or lets the operator write it.
func (a *app) newPayload(ctx context.Context, cmd *cobra.Command, file string, old []byte) ([]byte, error) {
	switch file {
	case "":
		return a.editor(ctx, cmd, old)
	case "-":
		if isTerminal(a.stdin) {
			fmt.Fprintln(a.stderr, "Write the payload, and end it with Ctrl-D:")
		}
		return io.ReadAll(a.stdin)
	}
	payload, err := os.ReadFile(file)
	if err != nil {
		return nil, &stepError{err: err, next: "Check --file. Nothing was changed."}
	}
	return payload, nil
}

// editor opens the payload in the operator's editor, in a file that nobody else
// may read.
func (a *app) editor(ctx context.Context, cmd *cobra.Command, old []byte) ([]byte, error) {
	program := os.Getenv("VISUAL")
	if program == "" {
		program = os.Getenv("EDITOR")
	}
	if program == "" || !isTerminal(a.stdin) {
		return nil, usage(cmd, "no payload: name a --file, or set EDITOR on a terminal")
	}
	file, err := os.CreateTemp("", "letterbox-*.json")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	if _, err := file.Write(old); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if err := file.Close(); err != nil {
		return nil, err
	}
	words := append(strings.Fields(program), file.Name())
	editor := exec.CommandContext(ctx, words[0], words[1:]...)
	editor.Stdin, editor.Stdout, editor.Stderr = a.stdin, a.stdout, a.stderr
	if err := editor.Run(); err != nil {
		return nil, fmt.Errorf("the editor %s: %w: nothing was changed", words[0], err)
	}
	payload, err := os.ReadFile(file.Name())
	if err != nil {
		return nil, err
	}
	if !bytes.HasSuffix(old, []byte("\n")) { // which editors add
		payload = bytes.TrimSuffix(payload, []byte("\n"))
	}
	return payload, nil
}
