// Command bench measures Letterbox beside its peers and the limits of the
// database, on one machine in one run.
//
//	go run ./bench                                   # about an hour, starts its own PostgreSQL
//	go run ./bench -short                            # under four minutes, small numbers of rows
//	go run ./bench -cases '^drain' -json out.jsonl   # some cases, figures for programs
//	go run ./bench -from out.jsonl -markdown -chart docs/performance.svg
//
// # What is compared
//
// Every peer does the same work: messages of 200 bytes of JSON, a handler that
// inserts one row in the transaction that completes its message, on a
// PostgreSQL that waits for the disk at each commit. A [contender] is a peer
// with its settings in one case; docs/performance.md lists the cases and how
// the peers are tuned.
//
// # How it is measured
//
// Each contender has a database of its own, all on one server. The rounds are
// interleaved (A B C A B C), the median is printed with the lowest and the
// highest round, and ratios are taken between medians of the same run. The clock
// of a drain ends with the commit of its last effect, as the server recorded it
// (track_commit_timestamp): how fast a peer starts to stop plays no part.
//
// # What it refuses
//
// After each round the effects are counted: as many rows as messages, each
// message once, the right sum, nothing left unfinished. If they do not add up,
// no figure is printed for that contender and the command fails.
package main
