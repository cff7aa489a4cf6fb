package inboxtest_test

import (
	"strings"
	"testing"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/inbox/inboxtest"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

// complaints is what ExactlyOnce has to say.
func complaints(t *testing.T, db *bun.DB, effects inboxtest.Effects) []string {
	t.Helper()
	r := &recorder{T: t}
	func() {
		defer func() {
			if p := recover(); p != nil && p != any(r) {
				panic(p)
			}
		}()
		inboxtest.ExactlyOnce(r, db, effects)
	}()
	return r.failures
}

func TestExactlyOnce(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(testing.TB) *bun.DB{"PostgreSQL": testdb.PGX, "SQLite": testdb.SQLite} {
		// Of the messages 1 to 4, the first two are processed.
		prepared := func(t *testing.T, config inbox.Config) *bank {
			t.Helper()
			b := openBank(t, open(t), config)
			b.work(t, "1", "2")
			if err := b.accept(t.Context(), "3", "4"); err != nil {
				t.Fatal(err)
			}
			return b
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			t.Run("a healthy inbox passes, wherever its tables are", func(t *testing.T) {
				t.Parallel()
				prefix := `we"ird `
				b := prepared(t, inbox.Config{Prefix: prefix})
				effects := transfers
				effects.Prefix, effects.Names = prefix, []string{"transfer"}
				if got := complaints(t, b.db, effects); len(got) != 0 {
					t.Error(got)
				}
			})

			for rule, c := range map[string]struct{ damage, want string }{
				"a second effect is reported":           {`INSERT INTO transfers VALUES ('2')`, `1 messages have an effect too many: ["2"]`},
				"an effect too early is reported":       {`INSERT INTO transfers VALUES ('3')`, `1 messages have an effect too many: ["3"]`},
				"an effect of no message is reported":   {`INSERT INTO transfers VALUES ('?')`, `1 messages have an effect too many: ["?"]`},
				"a lost effect is reported":             {`DELETE FROM transfers WHERE message_id = '1'`, `1 messages are processed without their effect: ["1"]`},
				"a message off the queue is reported":   {`DELETE FROM inbox_queue WHERE id = (SELECT id FROM inbox_messages WHERE message_id = '4')`, `1 messages are pending or dead, and no claim, retry or operator can find them: ["4"]`},
				"a queue row too many is reported":      {`INSERT INTO inbox_queue (id, name, ordering_key, due) SELECT id, name, '', received_at FROM inbox_messages WHERE message_id = '1'`, `1 messages are processed or discarded, and still in the queue: ["1"]`},
				"a message that vanished is reported":   {`DELETE FROM inbox_messages WHERE message_id = '3'`, `1 messages are in the queue without a message, by their number: ["3"]`},
				"a dead one that is claimable, as well": {`UPDATE inbox_messages SET status = 2 WHERE message_id = '3'`, `1 messages differ from their row in the queue: ["3"]`},
				"an effect under another name, as well": {`UPDATE inbox_messages SET name = 'other' WHERE message_id = '2'`, `1 messages have an effect too many: ["2"]`},
			} {
				t.Run(rule, func(t *testing.T) {
					t.Parallel()
					b := prepared(t, inbox.Config{})
					b.exec(t, c.damage)
					effects := transfers
					if strings.Contains(c.damage, "'other'") {
						effects.Names = []string{"transfer", "it's"}
					}
					got := complaints(t, b.db, effects)
					if len(got) != 1 || !strings.Contains(got[0], c.want) {
						t.Errorf("%q, want one with %q", got, c.want)
					}
				})
			}

			t.Run("a discarded message needs no queue row", func(t *testing.T) {
				t.Parallel()
				b := prepared(t, inbox.Config{})
				b.exec(t, `DELETE FROM inbox_queue WHERE id = (SELECT id FROM inbox_messages WHERE message_id = '4')`)
				b.exec(t, `UPDATE inbox_messages SET status = 2, discarded_at = received_at WHERE message_id = '4'`)
				if got := complaints(t, b.db, transfers); len(got) != 0 {
					t.Error(got)
				}
			})

			t.Run("a query that fails is reported", func(t *testing.T) {
				t.Parallel()
				b := prepared(t, inbox.Config{})
				if got := complaints(t, b.db, inboxtest.Effects{Query: `SELECT nothing FROM nowhere`}); len(got) != 1 {
					t.Errorf("%q, want one complaint", got)
				}
			})
		})
	}
}
