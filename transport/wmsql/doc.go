// Package wmsql adds messages of a watermill-sql/v3 subscriber to the inbox inside
// the subscriber's own transaction, the one that moves its offset: a message and its
// ack commit together, and one commit serves a whole batch.
//
// # Quick start
//
//	handle, err := wmsql.NewHandler(repo, wminbox.Config{Source: "orders", DB: db})
//	router.AddConsumerHandler("inbox", "orders", subscriber, handle)
//
// It is opt-in, and needs topic and inbox in one PostgreSQL database. Everywhere
// else, and when in doubt, use package wminbox with the same subscriber: the
// inbox's own READ COMMITTED transaction, and an ack after its commit.
//
// # What the subscriber does, and what this package does about it
//
// A nack does not roll back, whatever its documentation says: the message is sent
// again in the same transaction, which commits later with everything that was
// written. So each message runs behind a savepoint, and what failed is undone.
//
// A batch shares one REPEATABLE READ transaction. A duplicate that was stored
// after its snapshot is a serialization failure (40001) each time until the
// transaction ends; so is any statement after one that failed outside our
// savepoint (25P02). The handler therefore rolls the transaction back on every
// error, and returns nil. That ack goes nowhere: the subscriber writes it into the
// transaction that is gone, gets an error, waits its RetryInterval (1 s by default),
// and reads the batch again.
//
// With the schema of watermill-sql 3.1.0, an offset, only messages that were really
// acked are passed over when the subscriber closes in the middle of a batch. A
// schema of one's own that marks rows one by one must set SubscribeBatchSize to 1:
// the subscriber reports only the last row of a batch to it.
//
// # What it cannot do
//
// The commit comes after the handler has returned, so nobody can wake the processor:
// it finds the messages when it polls. For the same reason the [wminbox.Observer] is
// told "accepted" before the commit, and hears of the message again if that fails.
//
// # Rejects
//
// A [wminbox.Park] parks in the same transaction. Other policies do what they always
// do, and may do it again when the transaction fails.
//
// # Payloads
//
// watermill-sql stores payloads as JSON by default. Set GeneratePayloadType to BYTEA
// to keep other bytes.
package wmsql
