package inbox

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func FuzzBackoff(f *testing.F) {
	for _, seed := range []struct {
		base, limit int64
		n           int
	}{{0, 0, 0}, {1, 0, 1}, {int64(time.Second), int64(time.Hour), 5}, {-1, 1, 3}, {1, 1 << 62, 1 << 40}, {1 << 62, 1<<63 - 1, 2}, {3, -7, -1}} {
		f.Add(seed.base, seed.limit, seed.n)
	}
	f.Fuzz(func(t *testing.T, base, limit int64, n int) {
		b := Backoff{Base: time.Duration(base), Max: time.Duration(limit)}
		most := max(min(b.Max, maxDelay), 0)
		for range 3 {
			if delay := b.Delay(n); delay < 0 || delay > most || n <= 1 && delay > max(b.Base, 0) {
				t.Fatalf("%+v: a delay of %v after %d failures", b, delay, n)
			}
		}
	})
}

// What checkIdentifier lets pass is the same in every database, log line and
// comparison; what it refuses has a reason.
func FuzzIdentifier(f *testing.F) {
	for _, seed := range []string{"", "a", "order-1", "é", "e\u0301", "a\x00b", "a\nb", "\x7f", "\u0085", "\xff", "\xc3", "\u2028", "\ufeff", "🙂", strings.Repeat("é", 128), strings.Repeat("é", 128) + "x"} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, text string, emptyAllowed bool) {
		err := checkIdentifier(text, maxIdentifier, emptyAllowed)
		bad := text == "" && !emptyAllowed || len(text) > maxIdentifier || !utf8.ValidString(text) || strings.ContainsFunc(text, isControl)
		if (err != nil) != bad {
			t.Errorf("%q: %v", text, err)
		}
		if err == nil && cleanText(text) != text {
			t.Errorf("%q passes, and would be changed to be logged", text)
		}
		if err != nil && len(text) > 8 && strings.Contains(err.Error(), text) {
			t.Errorf("the error shows the value: %v", err)
		}
	})
}

// Whatever a table is called, it stands in a statement as one quoted name.
func FuzzQuotedName(f *testing.F) {
	for _, seed := range []string{"inbox", `a"b`, `""`, `"; DROP TABLE x; --`, "a.b", "é", "'"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		quoted := quoteIdent(name)
		if len(quoted) < 2 || quoted[0] != '"' || quoted[len(quoted)-1] != '"' {
			t.Fatalf("%q is not quoted: %s", name, quoted)
		}
		inner := quoted[1 : len(quoted)-1]
		if strings.Contains(strings.ReplaceAll(inner, `""`, ""), `"`) {
			t.Errorf("%q ends its own quotes: %s", name, quoted)
		}
		if strings.ReplaceAll(inner, `""`, `"`) != name {
			t.Errorf("%q became %s", name, quoted)
		}
	})
}
