// Package dedupe remembers keys for a while, so that work which is delivered
// several times runs once. It is for effects that are not in the database: a
// mail, a call of another service. For effects in the database use package inbox,
// whose guarantee is stronger.
//
// # Quick start
//
//	store, err := sqlstore.New(db, sqlstore.Config{}) // or redisstore, or dedupe.NewMemory
//	err = store.Migrate(ctx)
//	guard, err := dedupe.New(dedupe.Config{Store: store})
//
//	ran, err := guard.Do(ctx, "mails", orderID, func(ctx context.Context) error {
//		return sendMail(ctx, orderID)
//	})
//
// ran is false when the mail had been sent before. [Middleware] does the same
// around the handlers of a mediator, package wmdedupe around those of Watermill.
//
// # How it works
//
// A key is reserved under a lease before fn runs, confirmed for the TTL after fn
// returned nil, and released when fn failed, panicked or called runtime.Goexit.
// While fn runs the lease is extended; after a crash it ends by itself, and the
// next delivery runs. Confirmed keys are kept in a bounded least-recently-used
// cache in front of the store, where a duplicate costs well under a microsecond.
//
// # Guarantee
//
// Never lost: a key is only remembered after a run that returned nil. While the
// store answers, fn succeeds once per key and TTL, with these exceptions, each of
// which costs at most one extra run:
//
//   - the process dies after the effect and before the confirmation. The key is
//     free again when Config.Lease has passed;
//   - the lease ends while fn runs, because the process or the store stood still
//     for longer than it. It is counted and logged, and the context of fn ends
//     with the cause [ErrLeaseLost] as soon as the guard learns that another
//     process has the key. A success counts all the same: the key is remembered.
//
// While the store does not answer, Config.OnStoreError decides. Run, the default,
// runs every key that this process does not remember itself, once for each
// process and restart. A key that another process was known to hold is waited for
// until that lease would have ended. Fail runs nothing that could not be reserved,
// and ends fn's context when its lease has ended without an answer. Either way the
// errors are counted and logged.
//
// An effect outside of the database is at least once: no library can change that.
//
// # Concurrency
//
// A Guard is safe for concurrent use. Of several calls for one key one runs; the
// others wait until it has ended, in the same process on a channel, in others by
// asking the store at growing intervals of up to a second. They wait as long as
// their context lets them, so give it a deadline, and fn one too: a run that never
// ends holds its key for ever.
//
// Do starts one goroutine, which extends the lease and has ended when Do returns.
//
// # What it does not do
//
//   - It does not replace the inbox. A key is confirmed when fn returns; if fn
//     writes in a transaction that commits later, a failed commit is a lost
//     effect. Around a handler of the inbox the guard is wrong; inside it, around
//     the call of another service, it is right.
//   - It stores no results: a duplicate learns only that it is one.
//   - It compares no bodies: the key is all that counts.
//   - It deletes expired keys only when CleanupExpired is called, where the store
//     does not do so by itself.
//
// # Testing
//
// Config.Clock and MemoryConfig.Clock replace the time. With a Memory everything
// also works inside of testing/synctest. Package dedupetest checks a Store.
package dedupe
