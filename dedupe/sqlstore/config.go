package sqlstore

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// identifierLimit is the longest name PostgreSQL keeps whole (NAMEDATALEN-1).
	identifierLimit = 63
	// longestSuffix is what is appended to Prefix, at most.
	longestSuffix = len("_dedupe_expires_at")
)

// Config holds the settings of a Store. The zero value is ready to use.
type Config struct {
	// Schema is the PostgreSQL schema of the table. Empty: the search path of
	// the connection. SQLite has none.
	Schema string
	// Prefix begins the names of the table and its index: inbox_dedupe, ...
	// Default "inbox".
	Prefix string
	// LockTimeout is how long Migrate waits for each lock on PostgreSQL.
	// Default 10 s.
	LockTimeout time.Duration
	// Clock replaces the clock of SQLite, which is this process's, for tests.
	// PostgreSQL has its own.
	Clock func() time.Time
}

func (c *Config) setDefaults() {
	if c.Prefix == "" {
		c.Prefix = "inbox"
	}
	if c.LockTimeout == 0 {
		c.LockTimeout = 10 * time.Second
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
}

// validate joins every problem.
func (c *Config) validate() error {
	var problems []error
	for _, name := range []struct {
		field, value string
		limit        int
	}{
		{"Schema", c.Schema, identifierLimit},
		{"Prefix", c.Prefix, identifierLimit - longestSuffix},
	} {
		if err := checkName(name.value, name.limit); err != nil {
			problems = append(problems, fmt.Errorf("sqlstore: config: %s: %w", name.field, err))
		}
	}
	if c.LockTimeout < time.Millisecond { // PostgreSQL's unit, where 0 is for ever
		problems = append(problems, errors.New("sqlstore: config: LockTimeout: less than a millisecond"))
	}
	return errors.Join(problems...)
}

// checkName refuses what PostgreSQL would cut and what bun would fill in.
func checkName(s string, limit int) error {
	switch {
	case len(s) > limit:
		return fmt.Errorf("%d bytes, at most %d", len(s), limit)
	case !utf8.ValidString(s):
		return errors.New("invalid UTF-8")
	case strings.ContainsAny(s, "?\\{}"):
		return errors.New(`must not contain any of ?\{}`)
	case strings.ContainsFunc(s, func(c rune) bool { return c < 0x20 || c >= 0x7f && c <= 0x9f }):
		return errors.New("control character")
	}
	return nil
}
