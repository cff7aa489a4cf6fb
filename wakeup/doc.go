// Package wakeup carries wake-ups between processes by PostgreSQL's LISTEN and
// NOTIFY: a processor looks a few milliseconds after another process has
// committed messages, and not at its next poll. It uses pgx, beside whatever
// driver the inbox uses; package pgdriverwake is the same over bun's pgdriver.
//
// # Quick start
//
//	waker, err := wakeup.Open(dsn, wakeup.Config{Logger: logger})
//	if err != nil {
//		return err
//	}
//	defer waker.Close()
//	repo, err := inbox.NewRepository(db, names, inbox.Config{Waker: waker})
//
// That is all, in processes that accept and in those that process. Processes
// whose inboxes have another schema or prefix never wake each other.
//
// # Guarantee
//
// None: polling is complete, and wake-ups only make it faster. PollInterval can
// be long (10 s, say) where wake-ups work, and bounds the delay where they do
// not: while a connection is being opened again, or behind a pooler.
//
// After every reconnection a processor looks once, since something may have been
// committed meanwhile. What is accepted with a due time in the future, or retried
// by another processor, is found by polling when it is due.
//
// No failure of a wake-up fails an Accept, or makes one wait.
//
// # Connections
//
// Each running processor holds one connection that listens. A process that
// accepts holds one that notifies, opened when first needed and closed after
// Config.Idle without use. Both are opened from the connection string given
// here and never taken from the pool. Neither is used for the other's work, since
// a connection that waits cannot send. Plan for two more connections per process.
//
// A notification is sent after the commit, in a transaction of its own, with an
// empty payload: NOTIFY takes a lock on the whole database at its commit, and
// would bring commits that accept into one line. A busy process sends one per
// Config.Interval, whatever it accepts.
//
// The search path of these connections has to find the tables, unless
// inbox.Config.Schema names their schema. The channel is
// letterbox.<schema>.<prefix>_messages, or a hash where names need quoting or
// are long.
//
// # Poolers
//
// A pooler in transaction mode (PgBouncer, and services built on such a pooler)
// swallows LISTEN. So a listener sends a notification to itself first. If that
// does not arrive within two seconds, there is one warning, and processors poll;
// from time to time it is tried again. Give Open a connection string that leads
// past the pooler. To send notifications through one is fine.
//
// # Concurrency
//
// A Waker is safe for concurrent use, and may serve several inboxes. Its own
// notifications do not wake it: the repository tells the processors of its own
// process. So two repositories of one process that share an inbox, and are to
// wake each other, need a Waker each.
//
// The goroutine that sends ends by itself when there is nothing to send, and with
// Close. Listen starts none that outlives it.
//
// # What it does not do
//
// It carries no data, and knows no SQLite: there, processors of the same process
// are woken by the repository, others poll.
package wakeup
