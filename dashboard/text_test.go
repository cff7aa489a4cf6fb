package dashboard_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/letterbox-go/letterbox/dashboard"
)

func TestVisible(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"plain ü €":              "plain ü €",
		"\x1b[31mred":            `\x1b[31mred`,
		"a\u009bb":               `a\x9bb`,
		"a\u202eb":               `a\u202eb`,
		"bad\xffbyte":            `bad\xffbyte`,
		"replaced \ufffd before": "replaced \ufffd before",
		"two\nlines":             `two\x0alines`,
	} {
		if got := dashboard.Visible(text, false); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := dashboard.Visible("a\r\nb\tc\rd\x00", true); got != "a\r\nb\tc\\x0dd\\x00" {
		t.Errorf("%q", got)
	}
}

func TestNumbersAndSpans(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 7: "7", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000", -100: "-100"} {
		if got := dashboard.Number(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		0: "0 µs", 1500 * time.Microsecond: "1 ms", 1500 * time.Millisecond: "1.5 s", 2 * time.Second: "2 s", 61 * time.Second: "1 min 1 s",
		2 * time.Hour: "2 h", 76 * time.Hour: "3 d 4 h", -time.Second: "0 s",
	} {
		if got := dashboard.Span(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

func TestDiff(t *testing.T) {
	t.Parallel()
	got := dashboard.Diff("a\nb\nc\nd\ne\nf\ng\nh\ni", "a\nb\nc\nd\nE\nf\ng\nh\ni\nj")
	want := " …\n b\n c\n d\n−e\n+E\n f\n g\n h\n i\n+j\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := dashboard.Diff("same", "same"); got != " …\n" {
		t.Errorf("%q", got)
	}
}

func TestLineEndsSurviveAForm(t *testing.T) {
	t.Parallel()
	for stored, want := range map[string]string{"a\nb": "x\ny", "a\r\nb\r\n": "x\r\ny", "a\r\nb\n": "x\ny", "a": "x\ny"} {
		if got := dashboard.RestoreLineEnds("x\r\ny", []byte(stored)); got != want {
			t.Errorf("%q: %q, want %q", stored, got, want)
		}
	}
}
