// Package wminbox puts the inbox behind any Watermill subscriber: each message
// of a broker becomes an [inbox.Entry], is committed, and only then acked.
//
// # Quick start
//
//	park, err := wminbox.NewPark(db, wminbox.ParkConfig{})
//	err = park.Migrate(ctx)
//	handle, err := wminbox.NewHandler(repo, wminbox.Config{Source: "orders", Reject: park})
//	router.AddConsumerHandler("inbox", "orders", subscriber, handle)
//
// The router acks when the handler returns nil and nacks when it returns an
// error. Any message.Subscriber will do; package transport/brokers has
// unmarshalers that keep what producers without Watermill say about a message.
//
// # Message id
//
// msg.UUID is empty for every producer that is not Watermill, so the id comes
// from an ordered list of extractors, [Config.IDs]: the first that finds one
// wins. A blank id is none. A message in which nobody finds an id is rejected;
// it is never stored under "". Extractors without a source of their own share
// [Config.Source]; [Scoped] gives one its own.
//
// # Message name
//
// [Config.Names] works the same way: "name" as Watermill's cqrs component
// writes it, then "ce-type" of CloudEvents. [FixedName] is for topics that
// carry one type.
//
// # Bytes
//
// The payload is stored as it was received. [Config.Decode] decodes it too, but
// only to find out whether it can be: what cannot is rejected at the edge.
//
// # What becomes of a message
//
//	stored, duplicate, mismatch    committed: acked
//	database away, lock, timeout   nacked after a pause that grows
//	no id, no name, unregistered,  rejected: parked in a table and acked (Park),
//	undecodable, too long          published elsewhere and acked (Poison), or nacked (Nack)
//
// A mismatch (the same id with another body) is reported to the [Observer] and
// the log, and acked: sending it again cannot help.
//
// # Guarantee
//
// Nothing is acked before COMMIT has returned without error, or the reject policy
// has. Every delivery ends acked or nacked: errors, panics (of extractors and
// decoders as well), runtime.Goexit, a context that ends and a database that
// does not answer included. A redelivery is a Duplicate and acked.
//
// # Pauses
//
// A nack makes most brokers deliver again at once, so the handler waits before it
// returns a transient error. All deliveries that fail during one pause end with
// it, and the next is longer; see [Config.PauseBase]. With a [Config.Gate], the
// handler waits while the inbox is over its high-water mark instead of nacking.
// Both waits end with the message's context, and stay below the 30 seconds that
// brokers commonly wait for an ack.
//
// # Trace context
//
// A valid "traceparent" and its "tracestate" are stored with the entry, under
// these names of the W3C recommendation. Other metadata is kept when
// [Config.Metadata] lists it.
//
// # Concurrency
//
// The handler is safe for concurrent use. It serves one subscription or many;
// those that share a handler share its pauses.
//
// # What it does not do
//
// It does not order messages, does not replay what was parked, and never logs
// payloads or metadata. The acks are Watermill's: how long a broker waits, and
// whether a nack counts as a delivery attempt, is set there.
package wminbox
