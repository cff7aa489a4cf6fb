// Package redisstore keeps the keys of a dedupe guard in Redis.
//
// # Quick start
//
//	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
//	store, err := redisstore.New(client, redisstore.Config{})
//	guard, err := dedupe.New(dedupe.Config{Store: store})
//
// # Guarantee
//
// Each step is one script on one key, so it is atomic and works on a cluster.
// Redis's own expiry ends leases and TTLs; there is nothing to clean up. A key is
// stored under Prefix, the length of the scope, the scope and the id, so that no
// two keys meet.
//
// Redis may forget: without appendonly a restart does, a failover loses what was
// not replicated, and any maxmemory-policy but noeviction drops keys at will. A
// forgotten key runs again. Use sqlstore where that is too often.
//
// # Concurrency
//
// A Store is safe for concurrent use, by any number of processes.
//
// # What it does not do
//
// It opens and closes no client, and sets no timeouts: the guard bounds each call.
//
// # Testing
//
// The tests run package dedupetest on the Redis server that
// LETTERBOX_TEST_REDIS names (host:port) or that answers on 127.0.0.1:6379, and
// on an in-process one. Where CI is set and the machine has a redis-server, they
// start one rather than do without. They write below a prefix of their own.
package redisstore
