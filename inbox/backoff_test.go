package inbox

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestBackoffStaysWithinItsCeiling(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := Backoff{
			Base: time.Duration(rapid.Int64Min(0).Draw(t, "base")),
			Max:  time.Duration(rapid.Int64Min(0).Draw(t, "max")),
		}
		n := rapid.OneOf(rapid.IntRange(1, 100), rapid.IntMin(1)).Draw(t, "n")
		ceiling := b.ceiling(n)
		if limit := min(b.Max, maxDelay); ceiling < 0 || ceiling > limit {
			t.Fatalf("the ceiling is %v of %v", ceiling, limit)
		}
		if n > 1 {
			if before := b.ceiling(n - 1); before > ceiling || ceiling > 0 && before < ceiling/2 {
				t.Fatalf("it went from %v to %v", before, ceiling)
			}
		}
		if delay := b.Delay(n); delay < 0 || delay > ceiling {
			t.Fatalf("a delay of %v with a ceiling of %v", delay, ceiling)
		}
	})
}

func TestBackoffDoublesAndHasFullJitter(t *testing.T) {
	t.Parallel()
	b := Backoff{Base: time.Second, Max: 10 * time.Second}
	for n, want := range []time.Duration{1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second, 4: 8 * time.Second, 5: 10 * time.Second, 6: 10 * time.Second} {
		if n > 0 && b.ceiling(n) != want {
			t.Errorf("before retry %d: %v, want %v", n, b.ceiling(n), want)
		}
	}
	var low, high int
	for range 2000 {
		switch delay := b.Delay(4); {
		case delay < time.Second:
			low++
		case delay > 7*time.Second:
			high++
		}
	}
	if low < 100 || high < 100 { // 250 of each are expected
		t.Errorf("%d delays of 2000 in the lowest eighth and %d in the highest", low, high)
	}
}

func TestBackoffDefaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ given, want Backoff }{
		{Backoff{}, Backoff{time.Second, time.Hour}},
		{Backoff{Base: 2 * time.Hour}, Backoff{2 * time.Hour, 2 * time.Hour}},
		{Backoff{Max: time.Minute}, Backoff{time.Second, time.Minute}},
	} {
		got := c.given
		if got.setDefaults(); got != c.want {
			t.Errorf("%+v becomes %+v, want %+v", c.given, got, c.want)
		}
	}
}

func TestBackoffWithoutABaseEnds(t *testing.T) {
	t.Parallel()
	if delay := (Backoff{Max: time.Hour}).Delay(math.MaxInt); delay != 0 {
		t.Errorf("a delay of %v", delay)
	}
}
