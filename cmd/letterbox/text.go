package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"
)

// inert shows what could command a terminal, or change the order of what is
// read, as an escape sequence of Go.
func inert(text string) string {
	clean := true
	for _, r := range text {
		clean = clean && r != utf8.RuneError && strconv.IsPrint(r)
	}
	if clean {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		if r != utf8.RuneError && strconv.IsPrint(r) {
			b.WriteString(text[:size])
		} else {
			quoted := strconv.Quote(text[:size])
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		text = text[size:]
	}
	return b.String()
}

// cell shows somebody's text so that it cannot be mistaken: as it is, or between
// quotes.
func cell(text string) string {
	switch {
	case text == "":
		return "-"
	case text == "-", text[0] == '"', strings.TrimSpace(text) != text, inert(text) != text:
		return strconv.Quote(text)
	}
	return text
}

// short cuts what would break a table.
func short(text string, runes int) string {
	cut := 0
	for i := range text {
		if cut++; cut > runes {
			return text[:i] + "..."
		}
	}
	return text
}

// stamp writes a time, "-" for none.
func stamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02T15:04:05Z")
}

// since writes a duration, "-" for none.
func since(d time.Duration) string {
	switch {
	case d == 0:
		return "-"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// table aligns columns of cells.
type table struct{ w *tabwriter.Writer }

func newTable(w io.Writer, columns ...string) *table {
	t := &table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	if len(columns) > 0 {
		t.row(columns...)
	}
	return t
}

func (t *table) row(cells ...string) {
	fmt.Fprintln(t.w, strings.Join(cells, "\t"))
}

func (t *table) flush() error { return t.w.Flush() }

// inertJSON escapes what json leaves in strings and a terminal would act upon.
// Such characters stand nowhere else in JSON.
func inertJSON(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r < 0x7f, r != utf8.RuneError && strconv.IsPrint(r):
			out = append(out, text[:size]...)
		case r > 0xffff:
			r -= 0x10000
			out = fmt.Appendf(out, `\u%04x\u%04x`, 0xd800+(r>>10), 0xdc00+(r&0x3ff))
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		text = text[size:]
	}
	return out
}

// writeJSON writes a value over several lines.
func (a *app) writeJSON(value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	_, err = a.stdout.Write(append(inertJSON(text), '\n'))
	return err
}

// writeLine writes a value as one line of JSON.
func (a *app) writeLine(value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	_, err = a.stdout.Write(append(inertJSON(text), '\n'))
	return err
}
