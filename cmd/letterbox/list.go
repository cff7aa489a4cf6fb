package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/letterbox-go/letterbox/inbox"
)

const listExample = `  letterbox list --status dead --error timeout
  letterbox list --name credit_account --after 2h -o json`

func (a *app) list() *cobra.Command {
	var f filterFlags
	var limit int
	var from int64
	cmd := &cobra.Command{
		Use: "list", Short: "List messages, the newest first", Example: listExample, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := f.filter(cmd)
			if err != nil {
				return err
			}
			if limit < 1 {
				return usage(cmd, "--limit must be at least 1")
			}
			repo, closeDB, err := a.open(cmd.Context(), inbox.Config{})
			if err != nil {
				return err
			}
			defer closeDB()
			messages, next, err := collect(cmd.Context(), repo, filter, inbox.Page{Before: from, Limit: limit})
			if err != nil {
				return err
			}
			return a.writeList(messages, next)
		},
	}
	f.add(cmd, true)
	cmd.Flags().IntVar(&limit, "limit", 50, "how many at most")
	cmd.Flags().Int64Var(&from, "from", 0, "where the page before has ended")
	return cmd
}

// collect fills one page: a single call of List examines a bounded number of rows.
func collect(ctx context.Context, repo *inbox.Repository, filter inbox.Filter, page inbox.Page) (found []inbox.Summary, next int64, err error) {
	want := page.Limit
	for {
		page.Limit = want - len(found)
		some, next, err := repo.List(ctx, filter, page)
		if err != nil {
			return nil, 0, err
		}
		if found = append(found, some...); next == 0 || len(found) == want {
			return found, next, nil
		}
		page.Before = next
	}
}

func (a *app) writeList(messages []inbox.Summary, next int64) error {
	if a.output == "json" {
		list := struct {
			Messages []messageJSON `json:"messages"`
			Next     int64         `json:"next,omitempty"`
		}{Messages: []messageJSON{}, Next: next}
		for i := range messages {
			list.Messages = append(list.Messages, summaryJSON(&messages[i]))
		}
		return a.writeJSON(list)
	}
	if len(messages) == 0 {
		fmt.Fprintln(a.stderr, "No messages match.")
		return nil
	}
	t := newTable(a.stdout, "ID", "STATUS", "NAME", "SOURCE", "MESSAGE ID", "KEY", "ATTEMPTS", "RECEIVED", "DUE", "LAST ERROR")
	for i := range messages {
		m := &messages[i]
		t.row(strconv.FormatInt(m.ID, 10), statusOf(m), cell(m.Name), cell(m.Source), cell(m.MessageID), cell(m.OrderingKey),
			strconv.Itoa(m.Attempts), stamp(m.ReceivedAt), stamp(m.Due), cell(short(m.LastError, 60)))
	}
	if err := t.flush(); err != nil {
		return err
	}
	if next != 0 {
		fmt.Fprintf(a.stderr, "There are more: the same with --from %d.\n", next)
	}
	return nil
}
