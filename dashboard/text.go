package dashboard

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// visible returns text in which nothing acts unseen: control characters, and
// those that change the direction of writing, are spelled out, except for line
// ends and tabs when multiline.
func visible(text string, multiline bool) string {
	if strings.IndexFunc(text, unseen) < 0 && utf8.ValidString(text) {
		return text
	}
	var out strings.Builder
	for i, r := range text {
		switch {
		case multiline && (r == '\n' || r == '\t' || r == '\r' && strings.HasPrefix(text[i+1:], "\n")):
			out.WriteRune(r)
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], "\uFFFD"):
			fmt.Fprintf(&out, `\x%02x`, text[i])
		case unseen(r) && r <= 0xff:
			fmt.Fprintf(&out, `\x%02x`, r)
		case unseen(r):
			fmt.Fprintf(&out, `\u%04x`, r)
		default:
			out.WriteRune(r)
		}
	}
	return out.String()
}

// unseen reports control characters (C0, DEL, C1), marks of direction, and
// separators that a terminal or browser obeys instead of showing.
func unseen(r rune) bool {
	switch {
	case r < 0x20, r >= 0x7f && r <= 0x9f:
		return true
	case r >= 0x200b && r <= 0x200f, r >= 0x2028 && r <= 0x202e, r >= 0x2060 && r <= 0x206f, r == 0xfeff, r == 0x061c:
		return true
	}
	return false
}

// cut shortens a text to a number of characters.
func cut(limit int, text string) string {
	for i := range text {
		if limit == 0 {
			return text[:i] + "…"
		}
		limit--
	}
	return text
}

// number writes digits in groups: 1,234,567.
func number(n int64) string {
	digits := strconv.FormatInt(n, 10)
	start := 0
	if n < 0 {
		start = 1
	}
	for i := len(digits) - 3; i > start; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// span writes a duration in at most two units: 3 d 4 h, 12 min, 1.5 s, 12 ms.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	two := func(large time.Duration, largeUnit string, small time.Duration, smallUnit string) string {
		if rest := d % large / small; rest > 0 {
			return fmt.Sprintf("%d %s %d %s", d/large, largeUnit, rest, smallUnit)
		}
		return fmt.Sprintf("%d %s", d/large, largeUnit)
	}
	switch {
	case d < 0:
		return "0 s"
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", d.Seconds()), ".0") + " s"
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return two(time.Minute, "min", time.Second, "s")
	case d < day:
		return two(time.Hour, "h", time.Minute, "min")
	}
	return two(day, "d", time.Hour, "h")
}

// roughly is span in one unit, for lists: 3 d, 12 min, 5 s.
func roughly(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Second:
		return "0 s"
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < 2*day:
		return fmt.Sprintf("%d h", d/time.Hour)
	}
	return fmt.Sprintf("%d d", d/day)
}

// since says how long ago a time was, or how far ahead it is.
func since(t time.Time) string {
	switch d := time.Since(t); {
	case d < -time.Second:
		return "in " + roughly(-d)
	case d < time.Second:
		return "now"
	default:
		return roughly(d) + " ago"
	}
}

// bytesText writes a size: 512 B, 1.5 kB, 5.0 MB.
func bytesText(n int) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%d B", n)
	case n < 1_000_000:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1e6)
}
