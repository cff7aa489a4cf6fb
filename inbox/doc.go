// Package inbox is a transactional inbox: it stores messages that arrive at
// least once (from a broker, a webhook, a client that retries) and makes their
// effect on the database happen exactly once.
//
// # Accept and process
//
// Presentation code calls [Repository.Accept] with (message id, message) entries
// and answers 202, or acks, only after it returned: the messages are committed
// then. A repeat stores nothing and is answered the same way. [Repository.Add]
// does the same in the caller's transaction.
//
// A [Processor], usually in another process, claims due messages under
// FOR UPDATE SKIP LOCKED, decodes them by their name in the [NameMap], and sends
// them to the mediators with the handlers that the application registered
// anyway. What a handler writes through [DB], or through [SQL] where it does not
// use bun, and the status of its message commit together. [Processor.Run] is the
// worker; [Processor.Drain] is for tests and cron jobs; [Repository.GetMany] and
// [Processor.Process] are the parts for one's own loop.
//
// # Inline
//
// [Repository.HandleOnce] needs no second step: it runs a function exactly when
// the message is fresh, in one transaction with its receipt. docs/choosing.md
// says when which is right.
//
// # Failure
//
// An error, a panic or a timeout is an attempt: the writes of that handler are
// undone, its neighbours commit, and the message comes back after an exponential
// delay. After [ProcessorConfig.MaxAttempts] it is dead: kept, visible, out of
// the way. [Permanent], [RetryAfter] and [Postpone] are verdicts a handler can
// return. Deadlocks, lost connections, failovers and shutdowns are not attempts.
//
// # Order
//
// Messages with the same [Entry.OrderingKey] are processed one after another, in
// the order they were accepted, by however many processors. A retry keeps its
// place, and so does a dead message until an operator retries, skips or discards
// it. Other messages never wait for them.
//
// # Operating
//
// [Repository.Stats], [Repository.List] and [Repository.Get] show what is in the
// inbox; [Repository.Retry], [Repository.Discard], [Repository.SkipKey],
// [Repository.Pause] and others change it. An [Observer] sees what happens.
// [Processor.Run] also sweeps: see [Retention]. A message that kills its process
// is found out and given up: see [ProcessorConfig.MaxCrashes].
//
// # Guarantee
//
// One effect in this database per (source, message id, name), whatever is
// redelivered. Calls to other systems are at least once: no library can change
// that. A batch that fails is run again one by one, so such calls may repeat for
// its neighbours too; set BatchSize to 1 where that hurts.
//
// # Databases
//
// PostgreSQL 13 or newer through any driver under bun; with pgx set
// default_query_exec_mode=exec. SQLite through modernc.org/sqlite; open it with
// _pragma=busy_timeout(30000), _pragma=journal_mode(WAL) and _txlock=immediate,
// the timeout longer than a handler takes. The same tests run on both.
//
// # Concurrency
//
// Repository, Processor and NameMap are safe for concurrent use. Any number of
// processes may accept and process on the same tables.
//
// # What it does not do
//
// It does not read broker headers or store HTTP responses, and messages without
// an ordering key have no order. It never logs payloads.
//
// # Testing
//
// Package inboxtest holds the contract that every driver has to pass, and
// helpers for tests of handlers.
package inbox
