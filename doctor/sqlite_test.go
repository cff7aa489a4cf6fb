package doctor_test

import (
	"database/sql"
	"testing"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"

	"github.com/letterbox-go/letterbox/doctor"
	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

func TestPragmas(t *testing.T) {
	t.Parallel()
	for want, pragmas := range map[string]string{
		"busy-timeout warning": "?_pragma=synchronous(FULL)",
		"synchronous critical": "?_pragma=busy_timeout(10000)&_pragma=synchronous(OFF)",
		"synchronous warning":  "?_pragma=busy_timeout(10000)&_pragma=synchronous(NORMAL)",
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			db, err := sql.Open("sqlite", "file:"+testdb.SQLiteFile(t)+pragmas)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			p := open(t, bun.NewDB(db, sqlitedialect.New()), inbox.Config{})
			p.finds(t, doctor.Config{}, want)
			p.finds(t, doctor.Config{Outside: true})
		})
	}
}

func TestJournalModeOfTheFile(t *testing.T) {
	t.Parallel()
	p := open(t, testdb.SQLite(t), inbox.Config{})
	p.db.SetMaxOpenConns(1)
	p.exec(t, `PRAGMA journal_mode = DELETE`)
	p.evidence(t, p.finds(t, doctor.Config{Outside: true}, "journal-mode warning"), "journal-mode", "delete")
}

func TestMissingIndexOnSQLite(t *testing.T) {
	t.Parallel()
	p := open(t, testdb.SQLite(t), inbox.Config{})
	p.exec(t, `DROP INDEX inbox_queue_claim`)
	report := p.finds(t, doctor.Config{}, "missing-index critical")
	for _, f := range report.Findings {
		if f.ID == "missing-index" {
			p.exec(t, f.Remedy)
		}
	}
	p.finds(t, doctor.Config{})
}
