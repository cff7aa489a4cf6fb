package doctor

import (
	"errors"
	"fmt"
	"time"
)

// Config holds the settings of Examine. The zero value is ready to use.
type Config struct {
	// MaxAge is how long a due message may wait before that is a warning; twelve
	// times as long is critical. Default 5 min.
	MaxAge time.Duration
	// SnapshotAge is how long a transaction may stay open before it is a
	// warning; twelve times as long is critical. Default 5 min.
	SnapshotAge time.Duration
	// BrokerRetention is for how long the broker can deliver a message again.
	// Zero: not known, not examined.
	BrokerRetention time.Duration
	// Workers is how many workers the processors of this program have, to be
	// compared with its connection pool. Zero: not known, not examined.
	Workers int
	// Outside is true for a program that is not the one which accepts or
	// processes. The settings of its own connections say nothing then, and are
	// left out: SQLite's busy timeout and synchronous.
	Outside bool
	// Ignore are the IDs of findings that are left out.
	Ignore []string
	// ShowQueries adds the text of running queries to the evidence. It may
	// contain data.
	ShowQueries bool
	// MaxEvidence is how many lines of evidence a finding has at most. Default 10.
	MaxEvidence int
	// Timeout bounds each query. Default 5 s.
	Timeout time.Duration
	// Clock is the application's clock, to be compared with the database's.
	// Default time.Now.
	Clock func() time.Time
}

// criticalTimes is how many times a limit has to be passed to be critical.
const criticalTimes = 12

func (c *Config) setDefaults() {
	setDefault(&c.MaxAge, 5*time.Minute)
	setDefault(&c.SnapshotAge, 5*time.Minute)
	setDefault(&c.MaxEvidence, 10)
	setDefault(&c.Timeout, 5*time.Second)
	if c.Clock == nil {
		c.Clock = time.Now
	}
}

func setDefault[T comparable](value *T, fallback T) {
	var zero T
	if *value == zero {
		*value = fallback
	}
}

// validate joins every problem.
func (c *Config) validate() error {
	var problems []error
	for _, setting := range []struct {
		field string
		value int64
	}{
		{"MaxAge", int64(c.MaxAge)},
		{"SnapshotAge", int64(c.SnapshotAge)},
		{"BrokerRetention", int64(c.BrokerRetention)},
		{"Workers", int64(c.Workers)},
		{"MaxEvidence", int64(c.MaxEvidence)},
		{"Timeout", int64(c.Timeout)},
	} {
		if setting.value < 0 {
			problems = append(problems, fmt.Errorf("doctor: config: %s: negative", setting.field))
		}
	}
	return errors.Join(problems...)
}
