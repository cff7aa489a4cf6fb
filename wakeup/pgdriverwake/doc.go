// Package pgdriverwake is package wakeup for programs that use bun's pgdriver
// and want no second driver in their binary. What that package says of the
// connections, poolers and outages holds here as well; wakers of both packages
// wake each other.
//
// # Quick start
//
//	connector := pgdriver.NewConnector(pgdriver.WithDSN(dsn))
//	waker := pgdriverwake.New(connector, pgdriverwake.Config{})
//	defer waker.Close()
//	db := bun.NewDB(sql.OpenDB(connector), pgdialect.New())
//	repo, err := inbox.NewRepository(db, names, inbox.Config{Waker: waker})
//
// # Differences
//
// pgdriver tells nobody which backend a notification came from, so a process
// that accepts and processes hears its own: its processor looks once more than
// it had to, after each notification. Prefer package wakeup where that matters.
//
// pgdriver's listener cannot be trusted with a read that timed out. So a
// connection that hears nothing is kept alive by notifications to itself, and
// given up when they do not arrive: once per Config.KeepAlive there is one
// NOTIFY on a channel of its own. pgdriver prints a line to standard error
// whenever the connection that listens is lost.
package pgdriverwake
