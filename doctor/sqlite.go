package doctor

import (
	"context"
	"fmt"
)

const (
	sqliteVersion = `SELECT sqlite_version()`

	sqlitePragmas = `
SELECT (SELECT COALESCE(file, '') FROM pragma_database_list WHERE name = 'main') AS file,
	(SELECT journal_mode FROM pragma_journal_mode) AS journal_mode,
	(SELECT timeout FROM pragma_busy_timeout) AS busy_timeout,
	(SELECT synchronous FROM pragma_synchronous) AS synchronous`

	sqliteIndexNames = `SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name IN (?, ?) ORDER BY name`

	sqliteFile = `
SELECT (SELECT page_count FROM pragma_page_count) AS pages, (SELECT freelist_count FROM pragma_freelist_count) AS free,
	(SELECT page_size FROM pragma_page_size) AS bytes`
)

// busyLeast is the shortest busy timeout that makes writers wait for each other.
const busyLeast = 1000

// pragmas looks at the file's settings and at those of the connection.
func (e *examination) pragmas(ctx context.Context) error {
	var p struct {
		File        string
		JournalMode string
		BusyTimeout int64
		Synchronous int64
	}
	if err := e.scan(ctx, &p, sqlitePragmas); err != nil {
		return err
	}
	if p.File != "" && p.JournalMode != "wal" {
		e.find("journal-mode", Warning, "The journal mode of SQLite is not WAL: readers and the writer keep each other waiting",
			"Call Repository.Migrate, or PRAGMA journal_mode = WAL once; the file remembers it.", "journal_mode is "+p.JournalMode)
	}
	if e.config.Outside {
		return nil
	}
	if p.BusyTimeout < busyLeast {
		e.find("busy-timeout", Warning, "The busy timeout of SQLite is short: writers fail instead of waiting",
			"Add _pragma=busy_timeout(30000) to the data source name: longer than a handler takes.", fmt.Sprintf("busy_timeout is %d ms", p.BusyTimeout))
	}
	switch p.Synchronous {
	case 0:
		e.find("synchronous", Critical, "synchronous is off: a power failure can lose accepted messages, or the whole database",
			"Add _pragma=synchronous(FULL) to the data source name.")
	case 1:
		e.find("synchronous", Warning, "synchronous is NORMAL: a power failure can lose accepted messages",
			"Add _pragma=synchronous(FULL) to the data source name.")
	}
	return nil
}
