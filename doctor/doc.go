// Package doctor examines an inbox and its database, and explains what makes it
// slow or puts it in danger.
//
// # Quick start
//
//	report, err := doctor.Examine(ctx, repo, doctor.Config{})
//	for _, f := range report.Findings {
//		fmt.Println(f.Severity, f.Title)
//	}
//
// The command line has the same as "letterbox doctor". docs/doctor.md describes
// every finding.
//
// # What it does
//
// It reads: counts of the queue, the processors' rows, and the system views of
// the database. It writes nothing, takes no lock that others wait for, and runs
// no query for longer than [Config.Timeout]. What it may not read, or could not
// read in time, is a finding of its own ("unchecked"); the others are found all
// the same.
//
// # Concurrency
//
// Examine holds one connection at a time, and a second one for a moment to tell
// whether a pooler stands in between; it may be called at any time and from
// everywhere.
//
// # What it does not do
//
// It changes nothing, and shows no payload and no text of a query unless
// [Config.ShowQueries] says so. Errors of handlers are shown: they are stored
// with the dead messages.
package doctor
