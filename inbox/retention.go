package inbox

import "time"

// Retention says how long messages are kept. What is past it, Sweep removes.
//
// A dedupe window has to be longer than the time in which a sender or a broker
// may deliver a message again: what is forgotten is new.
type Retention struct {
	// DedupeWindow is how long the identity of a processed message is
	// remembered, and with it the row: from its receipt, and no shorter from
	// the moment it was processed. A discarded message is remembered as long
	// from then on. Default 30 days; negative: for ever.
	DedupeWindow time.Duration
	// PayloadRetention is how long the payload of a processed or discarded
	// message is kept, counted in the same way. It matters where it is shorter
	// than DedupeWindow. Default 30 days; negative: as long as the row.
	PayloadRetention time.Duration
	// PendingRetention deletes even messages that were never processed, once
	// they have been due for so long. Zero, the default: never. Else at least
	// twice the DedupeWindow.
	PendingRetention time.Duration
	// DeadRetention deletes dead messages so long after their death. Zero, the
	// default: never. Else at least the DedupeWindow.
	DeadRetention time.Duration
}

const defaultRetention = 30 * 24 * time.Hour

func (c *Retention) setDefaults() {
	setDefault(&c.DedupeWindow, defaultRetention)
	setDefault(&c.PayloadRetention, defaultRetention)
}

// validate hands every problem to report.
func (c *Retention) validate(report func(format string, args ...any)) {
	for _, limit := range []struct {
		field string
		value time.Duration
		times time.Duration
	}{
		{"PendingRetention", c.PendingRetention, 2},
		{"DeadRetention", c.DeadRetention, 1},
	} {
		switch {
		case limit.value < 0:
			report("Retention.%s: negative", limit.field)
		case limit.value > 0 && c.DedupeWindow < 0:
			report("Retention.%s: the DedupeWindow is for ever", limit.field)
		case limit.value > 0 && limit.value < limit.times*c.DedupeWindow:
			report("Retention.%s: must be at least %v, %s", limit.field, limit.times*c.DedupeWindow,
				map[time.Duration]string{1: "the DedupeWindow", 2: "twice the DedupeWindow"}[limit.times])
		}
	}
}

// before is where a retention ends at a time: what is older is past it.
// ok is false for a retention that is off.
func before(now time.Time, retention time.Duration) (cutoff time.Time, ok bool) {
	if retention <= 0 {
		return time.Time{}, false
	}
	return now.Add(-retention), true
}
