package inbox

import (
	"math/rand/v2"
	"time"
)

// Backoff is an exponential delay with full jitter: before the n-th retry a
// random time between zero and min(Max, Base * 2^(n-1)) passes.
type Backoff struct {
	Base time.Duration // ceiling of the first delay. Default 1 s
	Max  time.Duration // ceiling of all of them. Default 1 h
}

// Delay returns the delay after n failures, n from 1.
func (b Backoff) Delay(n int) time.Duration {
	ceiling := b.ceiling(n)
	if ceiling <= 0 {
		return 0
	}
	return rand.N(ceiling + 1)
}

// ceiling doubles instead of shifting, so that it cannot overflow.
func (b Backoff) ceiling(n int) time.Duration {
	limit := min(b.Max, maxDelay)
	ceiling := min(b.Base, limit)
	if ceiling <= 0 {
		return 0 // doubling would not end
	}
	for ; n > 1 && ceiling < limit; n-- {
		if ceiling > limit/2 {
			return limit
		}
		ceiling *= 2
	}
	return ceiling
}

func (b *Backoff) setDefaults() {
	setDefault(&b.Base, time.Second)
	setDefault(&b.Max, max(time.Hour, b.Base))
}
