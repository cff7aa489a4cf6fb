// Package backpressure tells the edge when to stop accepting, because the
// processors do not keep up.
//
// # Quick start
//
//	gate, err := backpressure.New(repo, backpressure.Config{MaxUnfinished: 100_000, MaxAge: 10 * time.Minute})
//	...
//	saturated, retryAfter, err := gate.Saturated(ctx)
//
// httpinbox answers 429 while the gate is saturated, wminbox pauses its
// subscriber. Without a gate nothing is ever refused.
//
// # Cost
//
// A call is a look at a cached answer. At most once per Refresh one caller asks
// the database, with a bounded query ([inbox.Repository.Backlog]); all others go
// on with the last answer meanwhile.
//
// # What it does not do
//
// It is not exact: between two looks, acceptors may store more than the mark
// allows. It does not tell a new message from a repeat: while saturated, both
// are put off.
package backpressure
