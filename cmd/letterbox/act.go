package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/letterbox-go/letterbox/inbox"
)

// assent are the flags of commands that change something.
type assent struct{ yes, dryRun bool }

func (s *assent) add(cmd *cobra.Command, asks bool) {
	if asks {
		cmd.Flags().BoolVarP(&s.yes, "yes", "y", false, "do not ask")
	}
	cmd.Flags().BoolVar(&s.dryRun, "dry-run", false, "only say what would happen")
}

// done reports what was changed, or would be.
func (a *app) done(action string, dryRun bool, n int64, sentence string) error {
	if a.output == "json" {
		return a.writeJSON(struct {
			Action string `json:"action"`
			Count  int64  `json:"count"`
			DryRun bool   `json:"dry_run"`
		}{action, n, dryRun})
	}
	if dryRun {
		sentence = "Dry run, nothing was changed. " + sentence
	}
	_, err := fmt.Fprintln(a.stdout, sentence)
	return err
}

func (a *app) retry() *cobra.Command {
	var ask assent
	cmd := &cobra.Command{
		Use: "retry ID...", Short: "Let messages run again at once", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.each(cmd, args, change{"retry", "Retried", ""}, &ask, (*inbox.Repository).Retry, func(d *inbox.Detail) error {
				switch {
				case d.Kind == inbox.Processed || d.Discarded:
					return fmt.Errorf("%w: it is %s", inbox.ErrNotRetryable, statusOf(&d.Summary))
				case d.Payload == nil:
					return inbox.ErrPayloadRemoved
				}
				return nil
			})
		},
	}
	ask.add(cmd, false)
	return cmd
}

func (a *app) discard() *cobra.Command {
	var ask assent
	cmd := &cobra.Command{
		Use: "discard ID...", Short: "Give messages up for good; they stay in the history", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.each(cmd, args, change{"discard", "Discarded", "Discard %s? They will never run, and that cannot be undone."}, &ask,
				(*inbox.Repository).Discard, func(d *inbox.Detail) error {
					if d.Kind == inbox.Processed || d.Discarded {
						return fmt.Errorf("%w: it is %s", inbox.ErrNotDiscardable, statusOf(&d.Summary))
					}
					return nil
				})
		},
	}
	ask.add(cmd, true)
	return cmd
}

// change is how a command speaks of what it does.
type change struct {
	verb, past string
	question   string // "" does not ask
}

// each looks at all the messages first, asks once, and acts on one after the
// other. possible says why the verb would refuse.
func (a *app) each(cmd *cobra.Command, args []string, c change, ask *assent,
	act func(*inbox.Repository, context.Context, int64) error, possible func(*inbox.Detail) error,
) error {
	ctx := cmd.Context()
	ids, err := parseIDs(cmd, args)
	if err != nil {
		return err
	}
	repo, closeDB, err := a.open(ctx, inbox.Config{})
	if err != nil {
		return err
	}
	defer closeDB()
	for _, id := range ids {
		d, err := repo.Get(ctx, id)
		if err == nil {
			err = possible(&d)
		}
		if err != nil {
			return fmt.Errorf("message %d: %w", id, err)
		}
	}
	number := int64(len(ids))
	if ask.dryRun {
		return a.done(c.verb, true, number, fmt.Sprintf("Would %s %s.", c.verb, count(number, "message")))
	}
	if c.question != "" {
		if err := a.confirm(ctx, ask.yes, fmt.Sprintf(c.question, count(number, "message"))); err != nil {
			return err
		}
	}
	var done int64
	var failures []error
	for _, id := range ids {
		if err := act(repo, ctx, id); err != nil {
			failures = append(failures, fmt.Errorf("message %d: %w", id, err))
			continue
		}
		done++
	}
	if err := a.done(c.verb, false, done, fmt.Sprintf("%s %s.", c.past, count(done, "message"))); err != nil {
		return err
	}
	return errors.Join(failures...)
}

func (a *app) skipKey() *cobra.Command {
	var ask assent
	cmd := &cobra.Command{
		Use: "skip-key KEY", Short: "Let an ordering key go on past its dead messages", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, key := cmd.Context(), args[0]
			repo, closeDB, err := a.open(ctx, inbox.Config{})
			if err != nil {
				return err
			}
			defer closeDB()
			n, err := blocking(ctx, repo, key)
			if err != nil {
				return err
			}
			if n == 0 {
				return &stepError{err: fmt.Errorf("no dead message holds up the key %s", cell(key)), next: "letterbox doctor lists the keys that are held up."}
			}
			if ask.dryRun {
				return a.done("skip-key", true, n, fmt.Sprintf("Would skip %s of the key %s.", count(n, "dead message"), cell(key)))
			}
			question := fmt.Sprintf("Let the key %s go on past %s? Later messages will run without their effect.", cell(key), count(n, "dead message"))
			if err := a.confirm(ctx, ask.yes, question); err != nil {
				return err
			}
			if n, err = repo.SkipKey(ctx, key); err != nil {
				return err
			}
			return a.done("skip-key", false, n, fmt.Sprintf("Skipped %s of the key %s.", count(n, "dead message"), cell(key)))
		},
	}
	ask.add(cmd, true)
	return cmd
}

// blocking counts the dead messages that hold up a key.
func blocking(ctx context.Context, repo *inbox.Repository, key string) (n int64, err error) {
	if key == "" {
		return 0, nil
	}
	filter, page := inbox.Filter{Status: inbox.Dead, OrderingKey: key}, inbox.Page{Limit: exportPage}
	for {
		messages, next, err := repo.List(ctx, filter, page)
		if err != nil {
			return 0, err
		}
		for i := range messages {
			if messages[i].Blocking {
				n++
			}
		}
		if page.Before = next; next == 0 {
			return n, nil
		}
	}
}

func (a *app) pause() *cobra.Command {
	return a.switchName("pause NAME", "Keep processors from starting messages of a name", "pause", "Paused", (*inbox.Repository).Pause)
}

func (a *app) resume() *cobra.Command {
	return a.switchName("resume NAME", "End a pause", "resume", "Resumed", (*inbox.Repository).Resume)
}

func (a *app) switchName(use, text, action, past string, act func(*inbox.Repository, context.Context, string) error) *cobra.Command {
	var ask assent
	cmd := &cobra.Command{
		Use: use, Short: text, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			repo, closeDB, err := a.open(cmd.Context(), inbox.Config{})
			if err != nil {
				return err
			}
			defer closeDB()
			stats, err := repo.Stats(cmd.Context())
			if err != nil {
				return err
			}
			pending := stats.Names[args[0]].Pending
			if ask.dryRun {
				return a.done(action, true, pending, fmt.Sprintf("Would %s %s: %s pending.", action, cell(args[0]), count(pending, "message")))
			}
			if err := act(repo, cmd.Context(), args[0]); err != nil {
				return err
			}
			return a.done(action, false, pending, fmt.Sprintf("%s %s: %s pending.", past, cell(args[0]), count(pending, "message")))
		},
	}
	ask.add(cmd, false)
	return cmd
}
