package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/letterbox-go/letterbox/inbox"
)

// filterFlags choose messages.
type filterFlags struct {
	status, name, source, key, messageID, after, before, errorText string
	failing, parked                                                bool
}

// add gives a command the flags; those of the status only if it has a choice.
func (f *filterFlags) add(cmd *cobra.Command, status bool) {
	flags := cmd.Flags()
	if status {
		flags.StringVar(&f.status, "status", "", "pending, processed, dead or discarded")
		flags.BoolVar(&f.failing, "failing", false, "pending ones that have failed before")
		flags.BoolVar(&f.parked, "parked", false, "those behind another of their ordering key")
		choices(cmd, "status", "pending", "processed", "dead", "discarded")
	}
	flags.StringVar(&f.name, "name", "", "of this stored name")
	flags.StringVar(&f.source, "source", "", "of this source")
	flags.StringVar(&f.key, "key", "", "of this ordering key")
	flags.StringVar(&f.messageID, "message-id", "", "with this message id")
	flags.StringVar(&f.after, "after", "", "received since: 2006-01-02T15:04:05Z, 2006-01-02, or 90m, 12h, 7d ago")
	flags.StringVar(&f.before, "before", "", "received before, likewise")
	flags.StringVar(&f.errorText, "error", "", "whose last error contains this text")
}

func (f *filterFlags) filter(cmd *cobra.Command) (inbox.Filter, error) {
	filter := inbox.Filter{
		Name: f.name, Source: f.source, OrderingKey: f.key, MessageID: f.messageID,
		ErrorContains: f.errorText, Failing: f.failing, Parked: f.parked,
	}
	switch f.status {
	case "":
	case "pending":
		filter.Status = inbox.Pending
	case "processed":
		filter.Status = inbox.Processed
	case "dead":
		filter.Status = inbox.Dead
	case "discarded":
		filter.Discarded = true
	default:
		return filter, usage(cmd, "--status must be pending, processed, dead or discarded, not %q", f.status)
	}
	for _, bound := range []struct {
		flag, value string
		to          *time.Time
	}{{"after", f.after, &filter.ReceivedAfter}, {"before", f.before, &filter.ReceivedBefore}} {
		var err error
		if *bound.to, err = parseTime(bound.value, time.Now()); err != nil {
			return filter, usage(cmd, "--%s: %w", bound.flag, err)
		}
	}
	return filter, nil
}

// describe says what the filter chooses, for questions.
func (f *filterFlags) describe() string {
	var parts []string
	for _, p := range []struct{ flag, value string }{
		{"name", f.name},
		{"source", f.source},
		{"key", f.key},
		{"message id", f.messageID},
		{"after", f.after},
		{"before", f.before},
		{"error", f.errorText},
	} {
		if p.value != "" {
			parts = append(parts, p.flag+" "+cell(p.value))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// parseTime reads a time, or how long ago it was.
func parseTime(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	ago, err := parseDuration(text)
	if err != nil || ago < 0 {
		return time.Time{}, fmt.Errorf("%q is no time: want 2006-01-02T15:04:05Z, 2006-01-02, or 90m, 12h, 7d", text)
	}
	return now.Add(-ago), nil
}

const day = 24 * time.Hour

// daysMost keeps days from overflowing.
const daysMost = 100_000

// parseDuration knows days, too.
func parseDuration(text string) (time.Duration, error) {
	if number, found := strings.CutSuffix(text, "d"); found {
		n, err := strconv.Atoi(number)
		if err != nil || n > daysMost || n < -daysMost {
			return 0, errors.New("not a number of days")
		}
		return time.Duration(n) * day, nil
	}
	return time.ParseDuration(text)
}

// duration is a flag that knows days.
type duration time.Duration

func (d *duration) Set(text string) error {
	v, err := parseDuration(text)
	*d = duration(v)
	return err
}

func (d *duration) Type() string { return "duration" }

func (d *duration) String() string {
	if *d == 0 {
		return ""
	}
	if v := time.Duration(*d); v%day == 0 {
		return strconv.Itoa(int(v/day)) + "d"
	}
	return time.Duration(*d).String()
}
