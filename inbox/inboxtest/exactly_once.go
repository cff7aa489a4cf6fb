package inboxtest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/uptrace/bun"
)

// Effects says where [ExactlyOnce] finds the effects and the messages.
type Effects struct {
	// Query lists the effects: one row with one column for each, the id of the
	// message that it is the effect of.
	//
	//	SELECT message_id FROM transfers
	Query string
	// Names are the stored names of the messages that have this effect. Empty:
	// all messages.
	Names []string
	// Schema and Prefix say where the tables of the inbox are, as in inbox.Config.
	Schema, Prefix string
}

// mostShown is how many ids of each kind are printed.
const mostShown = 10

// ExactlyOnce fails t unless every processed message has exactly one effect, no
// other message has any, and no message is out of reach: each pending or dead one
// has its row in the queue, and nothing else is there. It says what differs, by
// message id. Pending and dead messages are fine otherwise: drain first if there
// should be none.
//
// Messages that were swept cannot be counted any more: check before, or restrict
// the query.
func ExactlyOnce(t testing.TB, db bun.IDB, effects Effects) {
	t.Helper()
	if effects.Prefix == "" {
		effects.Prefix = "inbox"
	}
	for _, check := range []struct{ text, query string }{
		{"have an effect too many", effects.compare("e.n > m.n")},
		{"are processed without their effect", effects.compare("e.n < m.n")},
		{"are pending or dead, and no claim, retry or operator can find them", effects.unreachable(
			`q.id IS NULL AND (m.status = 0 OR m.status = 2 AND m.discarded_at IS NULL)`)},
		{"are processed or discarded, and still in the queue", effects.unreachable(
			`q.id IS NOT NULL AND (m.status = 1 OR m.discarded_at IS NOT NULL)`)},
		{"differ from their row in the queue", effects.unreachable(
			`q.id IS NOT NULL AND m.status <> 1 AND m.discarded_at IS NULL AND ((m.status = 2) <> (q.state = 2) OR q.name <> m.name)`)},
		{"are in the queue without a message, by their number", effects.fill(
			`SELECT CAST(q.id AS text) AS id FROM {queue} q WHERE NOT EXISTS (SELECT 1 FROM {messages} m WHERE m.id = q.id) ORDER BY q.id`)},
	} {
		ids, err := list(t.Context(), db, check.query)
		if err != nil {
			t.Fatalf("inboxtest: exactly once: %v", err)
		}
		if len(ids) > 0 {
			t.Errorf("inboxtest: exactly once: %d messages %s: %s", len(ids), check.text, show(ids))
		}
	}
}

// compare lists the message ids whose number of effects e.n and of processed
// messages m.n compare so.
func (e Effects) compare(condition string) string {
	names := ""
	if len(e.Names) > 0 {
		quoted := make([]string, len(e.Names))
		for i, name := range e.Names {
			quoted[i] = "'" + strings.ReplaceAll(name, "'", "''") + "'"
		}
		names = " AND name IN (" + strings.Join(quoted, ", ") + ")"
	}
	return e.fill(`
		WITH listed (id) AS (` + e.Query + `),
		e AS (SELECT CAST(id AS text) AS id, count(*) AS n FROM listed GROUP BY 1),
		m AS (SELECT message_id AS id, count(*) AS n FROM {messages} WHERE status = 1` + names + ` GROUP BY 1)
		SELECT ids.id FROM (SELECT id FROM e UNION SELECT id FROM m) AS ids
		LEFT JOIN e ON e.id = ids.id
		LEFT JOIN m ON m.id = ids.id
		WHERE ` + strings.NewReplacer("e.n", "COALESCE(e.n, 0)", "m.n", "COALESCE(m.n, 0)").Replace(condition) + `
		ORDER BY ids.id`)
}

func (e Effects) unreachable(condition string) string {
	return e.fill(`SELECT m.message_id AS id FROM {messages} m LEFT JOIN {queue} q ON q.id = m.id WHERE ` + condition + ` ORDER BY m.id`)
}

func (e Effects) fill(query string) string {
	table := func(suffix string) string {
		quote := func(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
		name := quote(e.Prefix + suffix)
		if e.Schema != "" {
			name = quote(e.Schema) + "." + name
		}
		return name
	}
	return strings.NewReplacer("{messages}", table("_messages"), "{queue}", table("_queue")).Replace(query)
}

// list runs a query of one column as it stands: a question mark in it is no
// argument.
func list(ctx context.Context, db bun.IDB, query string) (ids []string, err error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

func show(ids []string) string {
	if len(ids) > mostShown {
		return fmt.Sprintf("%q and %d more", ids[:mostShown], len(ids)-mostShown)
	}
	return fmt.Sprintf("%q", ids)
}
