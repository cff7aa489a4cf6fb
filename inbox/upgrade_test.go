package inbox_test

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/letterbox-go/letterbox/inbox"
)

// The tables of version 1 are upgraded with what is in them, and a program of
// version 1 goes on working on them.
func TestUpgradeFromVersion1(t *testing.T) {
	t.Parallel()
	targets(t, func(t *testing.T, target target) {
		n := openNode(t, target, true)
		now := `'2020-01-01T00:00:00.000000Z'`
		dir := "migrations/sqlite"
		if n.postgres() {
			dir = "migrations/postgres"
		}
		text, err := fs.ReadFile(inbox.Migrations, dir+"/0001_inbox.sql")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.db.DB.ExecContext(t.Context(), string(text)); err != nil {
			t.Fatal(err)
		}
		n.exec(t, `CREATE TABLE effects (job TEXT NOT NULL)`)
		// What the statements of version 1 name of the tables.
		accept := func(id int, state int) {
			t.Helper()
			n.exec(t, `INSERT INTO inbox_messages (id, source, message_id, name, ordering_key, payload, fingerprint, metadata, status, received_at)
				VALUES (?, '', ?, 'task', '', ?, NULL, '', ?, `+now+`)`, id, fmt.Sprint("m", id), []byte(fmt.Sprintf(`{"id":"m%d"}`, id)), state)
			n.exec(t, `INSERT INTO inbox_queue (id, name, ordering_key, due, state) VALUES (?, 'task', '', `+now+`, ?)`, id, state)
		}
		settle := func(id int) {
			t.Helper()
			n.exec(t, `DELETE FROM inbox_queue WHERE id = ? AND state = 0`, id)
			n.exec(t, `UPDATE inbox_messages SET status = 1, processed_at = `+now+` WHERE id = ? AND status = 0`, id)
		}
		accept(1001, 0)
		accept(1002, 2)
		accept(1003, 0)
		settle(1003)

		if err := n.repo.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		accept(1004, 0)
		accept(1005, 0)
		settle(1005)
		if got := n.drain(t, n.mustProcessor(t, inbox.ProcessorConfig{})); got != 2 {
			t.Errorf("%d processed, want 2", got)
		}
		if err := n.repo.Retry(t.Context(), 1002); err != nil {
			t.Error(err)
		}
		if got := n.drain(t, n.mustProcessor(t, inbox.ProcessorConfig{})); got != 1 {
			t.Errorf("%d processed after the retry, want 1", got)
		}
		outcomes, err := n.repo.Accept(t.Context(), taskEntries("m1001", "m1003", "new"))
		if err != nil {
			t.Fatal(err)
		}
		var kinds []string
		for _, o := range outcomes {
			kinds = append(kinds, o.Kind.String())
		}
		if got := strings.Join(kinds, " "); got != "duplicate duplicate stored" {
			t.Errorf("after the upgrade: %s", got)
		}
		n.drainAll(t)
	})
}
