package inbox

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/uptrace/bun"
)

// Tables are the names of the inbox's tables as they stand in SQL: quoted, and
// with the schema where Config names one.
type Tables struct {
	Messages   string
	Queue      string
	Attempts   string
	Processors string
	Pauses     string
	Minutes    string
	Schema     string // the table of schema versions
}

// Tables returns the names of the tables, for tools that look into them. They
// are the library's own: read them, and leave every write to the verbs.
func (r *Repository) Tables() Tables {
	return Tables{
		Messages: r.table("messages"), Queue: r.table("queue"), Attempts: r.table("attempts"),
		Processors: r.table("processors"), Pauses: r.table("pauses"), Minutes: r.table("minutes"), Schema: r.table("schema"),
	}
}

// Database returns the database that the repository was made with.
func (r *Repository) Database() *bun.DB { return r.db }

// Config returns the settings of the repository, with all defaults filled in.
func (r *Repository) Config() Config { return r.config }

// SchemaVersion returns the version of the tables, 0 when there are none, and
// the newest that this release knows.
func (r *Repository) SchemaVersion(ctx context.Context) (current, newest int, err error) {
	all, err := migrations(r.dialect)
	if err != nil {
		return 0, 0, err
	}
	current, err = r.store.version(ctx, r.db.DB)
	if err != nil {
		return 0, 0, r.wrap("schema version", err)
	}
	return current, len(all), nil
}

// MigrationSQL returns what Migrate would send to tables of a version, 0 for
// none, as one script with a transaction of its own: for databases whose
// migrations somebody else applies. "" when there is nothing to do.
func (r *Repository) MigrationSQL(from int) (string, error) {
	all, err := migrations(r.dialect)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, m := range all {
		if m.version > from {
			fmt.Fprintf(&text, "\n%s\n", strings.TrimSpace(r.rename(m.sql)))
		}
	}
	if text.Len() == 0 {
		return "", nil
	}
	begin := "BEGIN;\n"
	if r.config.Schema != "" {
		schema := quoteIdent(r.config.Schema)
		begin += "CREATE SCHEMA IF NOT EXISTS " + schema + ";\nSET LOCAL search_path TO " + schema + ";\n"
	}
	return begin + text.String() + "\nCOMMIT;\n", nil
}

// ExplainClaim returns how the database would look for due messages of the
// names, without doing it: on PostgreSQL the JSON of EXPLAIN (FORMAT JSON), on
// SQLite the lines of EXPLAIN QUERY PLAN.
func (r *Repository) ExplainClaim(ctx context.Context, names []string) (string, error) {
	if len(names) == 0 {
		names = []string{"name"}
	}
	if r.dialect == sqliteDialect {
		var lines []struct {
			ID, Parent, Notused int64
			Detail              string
		}
		q := binding{querier: r.db.DB, args: []any{names[0], r.timeText(r.processClock()), names[0], "[]", 32}}
		if err := r.scan(ctx, q, &lines, "EXPLAIN QUERY PLAN "+r.text(sqliteClaim)); err != nil {
			return "", r.wrap("explain claim", err)
		}
		var text strings.Builder
		for _, line := range lines {
			text.WriteString(line.Detail + "\n")
		}
		return text.String(), nil
	}
	dues := slices.Repeat([]string{"-infinity"}, len(names))
	ids := make([]int64, len(names))
	var text string
	q := binding{r.db.DB, "", []any{textArray(names), textArray(dues), idArray(ids)}}
	err := r.scan(ctx, q, &text, "EXPLAIN (FORMAT JSON) "+limited(r.text(postgresClaim), 32))
	return text, r.wrap("explain claim", err)
}
