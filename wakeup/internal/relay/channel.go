package relay

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// ResolveTable finds the schema of a table that the search path finds, and says
// which backend answers.
const ResolveTable = `SELECT n.nspname, c.relname, pg_backend_pid()
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = pg_catalog.to_regclass('%s')`

// ErrNoTable says that ResolveTable found none: the inbox is not migrated yet, or
// the search path of this connection differs from that of the pool.
var ErrNoTable = errors.New("the table is not there: migrate, or set inbox.Config.Schema")

// notifyAlone begins the transaction of a notification. Its commit need not wait
// for the disk, all the less as others that notify wait for it: what it tells of
// is durable already.
const notifyAlone = `SELECT pg_catalog.set_config('synchronous_commit', 'off', true);`

// Notification returns what to send, as one message of the simple protocol and so
// one transaction, to notify each channel.
func Notification(channels ...string) string {
	var text strings.Builder
	text.WriteString(notifyAlone)
	for _, channel := range channels {
		text.WriteString(" NOTIFY " + Quote(channel) + ";")
	}
	return text.String()
}

const (
	// channelLimit is the longest channel PostgreSQL takes (NAMEDATALEN-1).
	channelLimit = 63
	prefix       = "letterbox."
)

// plain are names that need no quoting, so that a dot in a channel separates.
var plain = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)

// Channel returns the channel of the inbox whose table of messages this is. It
// is readable where the names allow that, a hash otherwise; no two tables of a
// database share one.
func Channel(schema, table string) string {
	channel := prefix + schema + "." + table
	if plain.MatchString(schema) && plain.MatchString(table) && len(channel) <= channelLimit {
		return channel
	}
	hash := sha256.Sum256(fmt.Appendf(nil, "%d %s.%s", len(schema), schema, table))
	return fmt.Sprintf("%s#%x", prefix, hash[:20])
}

// ProbeChannel returns a channel that nobody else uses.
func ProbeChannel() string {
	var token [12]byte
	_, _ = rand.Read(token[:]) // never fails
	return fmt.Sprintf("%s?%x", prefix, token)
}

// Quote returns a channel of ours as an identifier. They hold no quotes.
func Quote(channel string) string { return `"` + channel + `"` }
