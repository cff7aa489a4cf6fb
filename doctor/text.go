package doctor

import (
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"
)

// textMost is how many bytes of somebody's text stand in a line of evidence.
const textMost = 200

// quote makes somebody's text safe to show anywhere, and short.
func quote(text string) string {
	if len(text) <= textMost {
		return strconv.Quote(text)
	}
	text = text[:textMost]
	for len(text) > 0 && !utf8.ValidString(text[len(text)-1:]) && !utf8.RuneStart(text[len(text)-1]) {
		text = text[:len(text)-1]
	}
	return strconv.Quote(text) + "..."
}

// age writes a duration with no more precision than it deserves.
func age(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%.1f days", d.Hours()/24)
	case d >= time.Minute:
		return d.Round(time.Second).String()
	default:
		return d.Round(time.Millisecond).String()
	}
}

// size writes bytes in binary units.
func size(bytes float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for ; bytes >= 1024 && i < len(units)-1; i++ {
		bytes /= 1024
	}
	return strconv.FormatFloat(bytes, 'f', map[bool]int{true: 0, false: 1}[i == 0], 64) + " " + units[i]
}

// plural is "1 message", "2 messages".
func plural(n int64, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.FormatInt(n, 10) + " " + one + "s"
}

// at writes a time that may be missing.
func at(t *time.Time) string {
	if t == nil {
		return "never"
	}
	return t.UTC().Format(time.RFC3339)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
