package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/letterbox-go/letterbox/inbox"
)

func (a *app) show() *cobra.Command {
	var payload bool
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show a message, its metadata and its attempts", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := parseIDs(cmd, args)
			if err != nil {
				return err
			}
			repo, closeDB, err := a.open(cmd.Context(), inbox.Config{})
			if err != nil {
				return err
			}
			defer closeDB()
			d, err := repo.Get(cmd.Context(), ids[0])
			if err != nil {
				return err
			}
			if a.output == "json" {
				return a.writeJSON(detailsJSON(&d, payload))
			}
			return a.writeDetail(&d, payload)
		},
	}
	cmd.Flags().BoolVar(&payload, "payload", false, "show the payload")
	return cmd
}

// parseIDs reads the numbers of messages.
func parseIDs(cmd *cobra.Command, args []string) ([]int64, error) {
	ids := make([]int64, len(args))
	for i, arg := range args {
		id, err := strconv.ParseInt(arg, 10, 64)
		if err != nil || id < 1 {
			return nil, usage(cmd, "%q is no ID: letterbox list shows them in its first column", arg)
		}
		ids[i] = id
	}
	return ids, nil
}

func (a *app) writeDetail(d *inbox.Detail, payload bool) error {
	t := newTable(a.stdout)
	line := func(label, value string) {
		if value != "-" {
			t.row(label, value)
		}
	}
	line("id", strconv.FormatInt(d.ID, 10))
	line("status", statusOf(&d.Summary))
	line("name", cell(d.Name))
	t.row("source", cell(d.Source))
	line("message id", cell(d.MessageID))
	line("ordering key", cell(d.OrderingKey))
	if d.BlockedBy != 0 {
		line("waits for", strconv.FormatInt(d.BlockedBy, 10))
	}
	if d.Blocking {
		line("holds up", "the later messages of its ordering key")
	}
	line("attempts", strconv.Itoa(d.Attempts))
	if d.Interruptions > 0 {
		line("interruptions", strconv.Itoa(d.Interruptions))
	}
	line("received", stamp(d.ReceivedAt))
	line("due", stamp(d.Due))
	line("died", stamp(d.DiedAt))
	line("processed", stamp(d.ProcessedAt))
	line("discarded", stamp(d.DiscardedAt))
	line("payload removed", stamp(d.PayloadRemovedAt))
	line("last error", cell(d.LastError))
	line("metadata", string(inertJSON([]byte(inertMetadata(d.RawMetadata)))))
	line("payload", describePayload(d.Payload, payload))
	if err := t.flush(); err != nil {
		return err
	}
	if len(d.History) > 0 {
		fmt.Fprintln(a.stdout)
		h := newTable(a.stdout, "ATTEMPT", "STARTED", "TOOK", "PROCESSOR", "ERROR")
		for _, r := range d.History {
			h.row(strconv.Itoa(r.Number), stamp(r.StartedAt), since(r.Duration), cell(r.Processor), cell(r.Error))
		}
		if err := h.flush(); err != nil {
			return err
		}
	}
	if payload && isJSON(d.Payload) {
		fmt.Fprintln(a.stdout)
		_, err := a.stdout.Write(append(inertJSON(indented(d.Payload)), '\n'))
		return err
	}
	return nil
}

// inertMetadata is JSON on one line, or between quotes what is none.
func inertMetadata(raw string) string {
	var b bytes.Buffer
	switch {
	case raw == "" || raw == "{}":
		return "-"
	case isJSON([]byte(raw)) && json.Compact(&b, []byte(raw)) == nil:
		return b.String()
	}
	return strconv.Quote(raw)
}

// describePayload is what stands in the line of the payload.
func describePayload(payload []byte, shown bool) string {
	size := fmt.Sprintf("%d bytes", len(payload))
	switch {
	case payload == nil:
		return "none"
	case !shown:
		return size + ", hidden (--payload shows it)"
	case isJSON(payload):
		return size + " of JSON, below"
	case utf8.Valid(payload):
		return size + " of text: " + strconv.Quote(string(payload))
	}
	return size + ", base64: " + base64.StdEncoding.EncodeToString(payload)
}

// indented writes JSON over several lines, digit for digit.
func indented(text []byte) []byte {
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "  "); err != nil {
		return text
	}
	return b.Bytes()
}
