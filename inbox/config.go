package inbox

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

const (
	// indexRowLimit is the largest index entry of PostgreSQL's B-tree on 8 KiB
	// pages: https://www.postgresql.org/docs/current/btree.html
	indexRowLimit = 2704
	// identifierLimit is the longest name PostgreSQL keeps whole (NAMEDATALEN-1).
	identifierLimit = 63
	// longestSuffix is what the schema appends to Prefix, at most.
	longestSuffix = len("_messages_identity")
)

// Config holds the settings of a Repository. The zero value is ready to use.
type Config struct {
	// Schema is the PostgreSQL schema of the tables. Empty: the search path of
	// the connection. SQLite has none.
	Schema string
	// Prefix begins the names of all tables and indexes: inbox_messages,
	// inbox_queue, ... Default "inbox". Two inboxes in one database need two
	// prefixes or two schemas.
	Prefix string
	// MaxPayload is the largest payload in bytes. Default 1 MiB.
	MaxPayload int
	// MaxBatch is how many entries one Add takes. Default 10,000.
	MaxBatch int
	// MaxBatchBytes is how many bytes of payload one Add takes. Default 16 MiB.
	MaxBatchBytes int
	// MaxIdentifier is the longest message id, source, name and ordering key in
	// bytes. Default 256. Three of them must fit one PostgreSQL index entry
	// (2,704 bytes).
	MaxIdentifier int
	// MaxMetadata is the largest metadata in bytes of JSON. Default 64 KiB.
	MaxMetadata int
	// LockTimeout is how long Migrate waits for each lock. Default 10 s.
	LockTimeout time.Duration
	// Retention says how long messages and payloads are kept.
	Retention Retention
	// Logger receives what an operator should know. Payloads are never logged.
	// Default: discard.
	Logger *slog.Logger
	// Observer sees what happens in the inbox, in addition to the log.
	Observer Observer
	// Waker carries wake-ups to and from other processes; package wakeup has
	// one for PostgreSQL. Default: none; what other processes accept is found
	// by polling.
	Waker Waker
	// DriverArgs go in front of the arguments of this library's own frequent
	// statements, for drivers that take options there. With pgx,
	//
	//	DriverArgs: []any{pgx.QueryExecModeCacheStatement}
	//
	// prepares each of them once per connection, which saves PostgreSQL half of
	// the work of a small accept. Arrays are then handed over as []string and
	// [][]byte, which pgx sends in binary, and the sizes of the tables are looked
	// up once a second, so that no plan is kept that they have outgrown. Leave it
	// empty with another driver, and behind a pooler in transaction mode that does
	// not know prepared statements (PgBouncer before 1.21, or with
	// max_prepared_statements = 0).
	DriverArgs []any
	// Clock replaces the database's clock, for tests. Default: the database's own.
	Clock func() time.Time
}

func (c *Config) setDefaults() {
	if c.Prefix == "" {
		c.Prefix = "inbox"
	}
	setDefault(&c.MaxPayload, 1<<20)
	setDefault(&c.MaxBatch, 10_000)
	setDefault(&c.MaxBatchBytes, 16<<20)
	setDefault(&c.MaxIdentifier, maxIdentifier)
	setDefault(&c.MaxMetadata, 64<<10)
	setDefault(&c.LockTimeout, 10*time.Second)
	c.Retention.setDefaults()
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// setDefault sets a zero value.
func setDefault[T comparable](value *T, fallback T) {
	var zero T
	if *value == zero {
		*value = fallback
	}
}

// validate joins every problem.
func (c *Config) validate() error {
	var problems []error
	report := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("inbox: config: "+format, args...))
	}
	for _, name := range []struct {
		field, value string
		limit        int
	}{
		{"Schema", c.Schema, identifierLimit},
		{"Prefix", c.Prefix, identifierLimit - longestSuffix},
	} {
		if err := checkIdentifier(name.value, name.limit, true); err != nil {
			report("%s: %v", name.field, err)
		} else if strings.ContainsAny(name.value, `?\`) {
			report(`%s: must not contain '?' or '\'`, name.field)
		}
	}
	for _, size := range []struct {
		field string
		value int
	}{
		{"MaxPayload", c.MaxPayload},
		{"MaxBatch", c.MaxBatch},
		{"MaxBatchBytes", c.MaxBatchBytes},
		{"MaxIdentifier", c.MaxIdentifier},
		{"MaxMetadata", c.MaxMetadata},
		{"LockTimeout", int(c.LockTimeout)},
	} {
		if size.value < 0 {
			report("%s: negative", size.field)
		}
	}
	c.Retention.validate(report)
	// Each column of an index entry may carry a header of four bytes and
	// padding, the entry itself eight more.
	if entry := 3*(c.MaxIdentifier+8) + 8; entry > indexRowLimit {
		report("MaxIdentifier: source, message id and name may need %d bytes of index entry, PostgreSQL allows %d", entry, indexRowLimit)
	}
	return errors.Join(problems...)
}
