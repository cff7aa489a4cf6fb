package inbox

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/internal/testdb"
)

// enders would end the transaction, or touch a savepoint of ours.
var enders = map[dialectName][]string{
	"": {
		"COMMIT", "commit", "Commit;", "\n\t COMMIT", "END", "ROLLBACK", "BEGIN", "rollback transaction",
		"-- x\nCOMMIT", "--\nCOMMIT", "/**/COMMIT", "/*x*/ /*y*/COMMIT/*", "/***/COMMIT", "/*/ */COMMIT",
		";COMMIT", " ; ;\n;COMMIT", "SELECT 1;COMMIT", "SELECT ';';COMMIT", "SELECT ''';';COMMIT", `SELECT 1 AS "a"";" ; COMMIT`,
		"SELECT '--';COMMIT", "SELECT '/*';COMMIT", `SELECT "/*";COMMIT`, "SELECT 1 -- ';\n;COMMIT", "SELECT 1 /* ' */;COMMIT", "SELECT 1/2;COMMIT", "SELECT 1-2;COMMIT",
		"ROLLBACK TO letterbox_message", "ROLLBACK TO SAVEPOINT LETTERBOX_BATCH", `rollback to "letterbox_message"`, "RELEASE letterbox_x", "release savepoint/**/letterbox_x", "SAVEPOINT letterbox_x",
		"SAVEPOINT a; ROLLBACK TO a; COMMIT",
	},
	postgresDialect: {
		"ABORT", "START TRANSACTION", "PREPARE TRANSACTION 'x'", "prepare /**/ transaction 'x'", "ROLLBACK WORK", "COMMIT PREPARED 'x'",
		"/* /* */ */COMMIT", "/*/* */*/COMMIT", "-- x\rCOMMIT",
		`SELECT E'\'';COMMIT`, `SELECT e'\\';COMMIT`, `SELECT '\';COMMIT`, `SELECT E'\'' ';' ;COMMIT`, "SELECT E'a'\n'\\'';COMMIT --'", "SELECT E'a' -- x\n '\\'';COMMIT --'",
		"SELECT $$;$$;COMMIT", "SELECT $a$ $$;$b$ $a$;COMMIT", "SELECT $1;COMMIT", "SELECT a$$;COMMIT", "SELECT 1 ` 2;COMMIT", "SELECT a[1];COMMIT", "SELECT $é$;$é$;COMMIT",
	},
	sqliteDialect: {
		"/*/*/COMMIT/**/", "/* /* */COMMIT", "SELECT 1 -- \r'\n;COMMIT --'", "SELECT `;`;COMMIT", "SELECT 1 AS [']; COMMIT --'", "\ufeffCOMMIT", "SELECT $$;COMMIT", `SELECT e'\';COMMIT`,
		"ROLLBACK TRANSACTION TO letterbox_message", "RELEASE 'letterbox_x'", "RELEASE [letterbox_x]", "RELEASE `letterbox_x`",
	},
}

// harmless must pass.
var harmless = map[dialectName][]string{
	"": {
		"", ";", "SELECT 1", "SELECT 'COMMIT'", "SELECT ';COMMIT'", `SELECT 1 AS ";COMMIT"`, "-- ;COMMIT", "/* ;COMMIT */ SELECT 1",
		"INSERT INTO commits VALUES (1)", "SELECT 1 AS commit", "SELECT CASE WHEN 1=1 THEN 1 END", "UPDATE begin_at SET x = 1", "commits", "SAVEPOINT mine", "ROLLBACK TO mine", "ROLLBACK TO SAVEPOINT mine", "RELEASE mine",
		"SELECT ''';COMMIT", "SELECT 1 -- ;\n", "-- 1;COMMIT\n-- 2;COMMIT",
	},
	postgresDialect: {
		"PREPARE q AS SELECT 1", "SELECT $$;COMMIT$$", "SELECT $x$;COMMIT;$x$", `SELECT E'\';COMMIT'`, "/* /* */ ;COMMIT */ SELECT 1", "SELECT E'a'\n'\\';COMMIT'",
		"DO $$ BEGIN PERFORM 1; END $$", "START_X",
	},
	sqliteDialect: {"SELECT 1 AS [;COMMIT]", "SELECT 1 AS `;COMMIT`", "-- \r;COMMIT", "/* /* ;COMMIT */ SELECT 1", "SELECT 1 AS $x"},
}

func TestTextThatEndsTheTransactionIsRefused(t *testing.T) {
	t.Parallel()
	for _, dialect := range []dialectName{postgresDialect, sqliteDialect} {
		for _, own := range []dialectName{"", dialect} {
			for _, text := range enders[own] {
				if _, err := checkStatement(dialect, text); err == nil {
					t.Errorf("%s: %q passes", dialect, text)
				}
			}
			for _, text := range harmless[own] {
				if _, err := checkStatement(dialect, text); err != nil {
					t.Errorf("%s: %q: %v", dialect, text, err)
				}
			}
		}
	}
}

func TestARollbackToASavepointIsTold(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"ROLLBACK TO a":                  true,
		"select 1; rollback to a":        true,
		"ROLLBACK WORK TO SAVEPOINT a":   true,
		"SELECT 'ROLLBACK TO a'":         false,
		"SAVEPOINT a; RELEASE a":         false,
		"SELECT 1 -- ; ROLLBACK TO a":    false,
		"/* ; */ ROLLBACK /* */ TO\na; ": true,
	} {
		got, err := checkStatement(postgresDialect, text)
		if err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// survives sends text in a transaction with our savepoint, and reports whether
// both are there afterwards.
func survives(ctx context.Context, t *testing.T, db *bun.DB, text string) bool {
	t.Helper()
	conn, err := db.DB.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, "SAVEPOINT letterbox_message"); err != nil {
		t.Fatal(err)
	}
	_, _ = tx.ExecContext(ctx, text)
	_, err = tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT letterbox_message")
	if err != nil {
		_ = conn.Raw(func(any) error { return sql.ErrConnDone })
	}
	return err == nil
}

// What the scanner lets pass must not end the transaction of a real database.
func TestTextThatPassesIsHarmlessInADatabase(t *testing.T) {
	t.Parallel()
	for _, target := range []struct {
		name    string
		dialect dialectName
		open    func(testing.TB) *bun.DB
	}{
		{"pgx", postgresDialect, testdb.PGX},
		{"pgdriver", postgresDialect, testdb.PGDriver},
		{"SQLite", sqliteDialect, testdb.SQLite},
	} {
		t.Run(target.name, func(t *testing.T) {
			t.Parallel()
			db := target.open(t)
			for _, group := range []map[dialectName][]string{enders, harmless} {
				for _, texts := range group {
					for _, text := range texts {
						if target.name == "pgdriver" && blank(text) {
							continue // it takes the answer to an empty query for a broken connection
						}
						if _, err := checkStatement(target.dialect, text); err == nil && !survives(t.Context(), t, db, text) {
							t.Errorf("%q passes, and ended the transaction", text)
						}
					}
				}
			}
		})
	}
}

func blank(text string) bool {
	s := scanner{text: text, postgres: true}
	for s.nextStatement() {
		if s.skipSpace(); s.text != "" && s.text[0] != ';' {
			return false
		}
	}
	return true
}

func FuzzCheckStatement(f *testing.F) {
	for _, group := range []map[dialectName][]string{enders, harmless} {
		for _, texts := range group {
			for _, text := range texts {
				f.Add(text)
			}
		}
	}
	db := testdb.SQLite(f)
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := checkStatement(postgresDialect, text); err == nil {
			// A statement behind what passes is seen, unless the text ends inside of something.
			if _, err := checkStatement(postgresDialect, text+"\n;COMMIT"); err == nil && !unfinished(text) {
				t.Errorf("%q hides what follows", text)
			}
		}
		upper := strings.ToUpper(text)
		if strings.Contains(upper, "PRAGMA") || strings.Contains(upper, "ATTACH") || strings.Contains(upper, "RECURSIVE") {
			return // may change the rules, or take for ever
		}
		if _, err := checkStatement(sqliteDialect, text); err == nil && !survives(t.Context(), t, db, text) {
			t.Errorf("%q passes, and ended the transaction", text)
		}
	})
}

// unfinished reports a text that may end in the middle of a string, a quoted
// name or a comment.
func unfinished(text string) bool { return strings.ContainsAny(text, "'\"$*") }

func TestARefusalNamesTheStatement(t *testing.T) {
	t.Parallel()
	_, err := checkStatement(postgresDialect, "select 1; prepare transaction 'x'")
	if want := "PREPARE TRANSACTION is refused"; err == nil || !strings.Contains(fmt.Sprint(err), want) {
		t.Errorf("%v, want %q in it", err, want)
	}
}
