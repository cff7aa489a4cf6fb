package doctor

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/letterbox-go/letterbox/inbox"
)

// wantedPostgres and wantedSQLite are the indexes of the two tables, without
// the prefix.
var (
	wantedPostgres = []string{"messages_identity", "messages_id", "queue_pkey", "queue_claim", "queue_key", "queue_dead"}
	wantedSQLite   = []string{"messages_identity", "queue_claim", "queue_key", "queue_dead"}
)

// constraints are the indexes that CREATE TABLE makes.
var constraints = map[string]string{
	"messages_identity": `PRIMARY KEY ("source", "message_id", "name")`,
	"queue_pkey":        `PRIMARY KEY ("id")`,
}

// settled matches the columns that settling changes.
var settled = regexp.MustCompile(`\b(status|attempts|last_error|processed_at|payload|payload_removed_at|discarded_at)\b`)

func (e *examination) postgresIndexes(ctx context.Context) error {
	var rows []struct {
		Name       string
		OnMessages bool
		Valid      bool
		Definition string
		Uses       string
	}
	messages, queue := e.tables.Messages, e.tables.Queue
	if err := e.scan(ctx, &rows, postgresIndexes, messages, messages, queue); err != nil {
		return err
	}
	prefix := e.repo.Config().Prefix + "_"
	there := map[string]bool{}
	var invalid, remedies, costly []string
	for _, r := range rows {
		name := strings.TrimPrefix(r.Name, prefix)
		there[name] = true
		e.indexes[name] = r.Valid
		if !r.Valid && slices.Contains(wantedPostgres, name) {
			invalid = append(invalid, r.Name)
			remedies = append(remedies, fmt.Sprintf("REINDEX INDEX CONCURRENTLY %s;", e.qualified(r.Name)))
		}
		if r.OnMessages && settled.MatchString(r.Uses) {
			costly = append(costly, r.Definition)
		}
	}
	if len(invalid) > 0 {
		e.find("invalid-index", Critical, "An index is invalid: it is written, and never read", strings.Join(remedies, "\n"), invalid...)
	}
	if len(costly) > 0 {
		e.find("costly-index", Warning, "An index on messages names a column that settling changes",
			"Drop it: with it, settling a message is no longer a heap-only update, and the table and all its indexes grow. Lists of unfinished and dead messages start from the queue.", costly...)
	}
	return e.missing(wantedPostgres, there)
}

func (e *examination) sqliteIndexes(ctx context.Context) error {
	var names []string
	prefix := e.repo.Config().Prefix + "_"
	if err := e.scan(ctx, &names, sqliteIndexNames, prefix+"messages", prefix+"queue"); err != nil {
		return err
	}
	there := map[string]bool{}
	for _, name := range names {
		name = strings.TrimPrefix(name, prefix)
		there[name], e.indexes[name] = true, true
	}
	return e.missing(wantedSQLite, there)
}

// missing reports the indexes that are not there, with the statements that make
// them.
func (e *examination) missing(wanted []string, there map[string]bool) error {
	var lines, remedies []string
	for _, name := range wanted {
		if there[name] {
			continue
		}
		statement, err := e.create(name)
		if err != nil {
			return err
		}
		lines, remedies = append(lines, e.repo.Config().Prefix+"_"+name), append(remedies, statement)
	}
	if len(lines) > 0 {
		e.find("missing-index", Critical, plural(int64(len(lines)), "index")+" missing", strings.Join(remedies, "\n"), lines...)
	}
	return nil
}

// create returns the statement that makes an index, as the migrations have it.
func (e *examination) create(name string) (string, error) {
	full := quoteIdent(e.repo.Config().Prefix + "_" + name)
	script, err := e.repo.MigrationSQL(0)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(script) {
		if strings.HasPrefix(line, "CREATE") && strings.Contains(line, "INDEX "+full) {
			if e.repo.Config().Schema != "" {
				line = strings.Replace(line, " ON ", " ON "+quoteIdent(e.repo.Config().Schema)+".", 1)
			}
			if strings.HasPrefix(e.report.Database, "PostgreSQL") {
				line = strings.Replace(line, "INDEX ", "INDEX CONCURRENTLY ", 1)
			}
			return strings.TrimSpace(line), nil
		}
	}
	return fmt.Sprintf("ALTER TABLE %s ADD CONSTRAINT %s %s;", e.tableOf(name, e.tables), full, constraints[name]), nil
}

func (e *examination) tableOf(index string, tables inbox.Tables) string {
	if strings.HasPrefix(index, "queue_") {
		return tables.Queue
	}
	return tables.Messages
}

// qualified quotes a name of a relation in the inbox's schema.
func (e *examination) qualified(name string) string {
	if schema := e.repo.Config().Schema; schema != "" {
		return quoteIdent(schema) + "." + quoteIdent(name)
	}
	return quoteIdent(name)
}

func quoteIdent(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
