package inbox_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/uptrace/bun"
	"pgregory.net/rapid"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

// TestWhatGoesInComesOut accepts random entries, many of them repeats, in random
// batches, and compares outcomes and rows with a model in a map.
func TestWhatGoesInComesOut(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(testing.TB) *bun.DB{"pgx": testdb.PGX, "pgdriver": testdb.PGDriver, "sqlite": testdb.SQLite} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t)
			names := inbox.NewNameMap()
			inbox.Register[orderPlaced](names, "placed")
			inbox.Register[orderCancelled](names, `o'"\?{}$1`)
			repo, err := inbox.NewRepository(db, names, inbox.Config{})
			if err != nil {
				t.Fatal(err)
			}
			if err := repo.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			rapid.Check(t, func(rt *rapid.T) { roundTrip(rt, t.Context(), db, repo) })
		})
	}
}

// identifier draws valid identifiers, short ones and characters that mean
// something somewhere more often.
func identifier(atLeast int) *rapid.Generator[string] {
	special := rapid.SampledFrom([]rune(`aAé'"\?$:{}[](),;%_-/*#@!~ ` + "`\u0301\ufeff\u2028\ufffd\U0010ffff"))
	character := rapid.OneOf(special, rapid.Rune().Filter(func(r rune) bool {
		return utf8.ValidRune(r) && r >= 0x20 && (r < 0x7f || r > 0x9f)
	}))
	return rapid.StringOfN(character, atLeast, 256, 256)
}

func roundTrip(t *rapid.T, ctx context.Context, db *bun.DB, repo *inbox.Repository) {
	// Few identities, so that there are repeats.
	ids := rapid.SliceOfN(identifier(1), 1, 4).Draw(t, "ids")
	sources := rapid.SliceOfN(identifier(0), 1, 2).Draw(t, "sources")
	bodies := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 300), 1, 3).Draw(t, "bodies")
	entry := rapid.Custom(func(t *rapid.T) inbox.Entry {
		return inbox.Entry{
			MessageID:   rapid.SampledFrom(ids).Draw(t, "id"),
			Source:      rapid.SampledFrom(sources).Draw(t, "source"),
			OrderingKey: identifier(0).Draw(t, "key"),
			Message: inbox.Raw{
				Name:    rapid.SampledFrom([]string{"placed", `o'"\?{}$1`}).Draw(t, "name"),
				Payload: rapid.SampledFrom(bodies).Draw(t, "body"),
			},
			Metadata: rapid.MapOfN(rapid.String(), rapid.String(), 0, 3).Draw(t, "metadata"),
		}
	})
	model := map[inbox.Identity]inbox.Entry{}
	for range rapid.IntRange(1, 4).Draw(t, "calls") {
		entries := rapid.SliceOfN(entry, 0, 6).Draw(t, "entries")
		outcomes, err := repo.Accept(ctx, entries)
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range entries {
			raw := e.Message.(inbox.Raw)
			identity := inbox.Identity{Source: e.Source, MessageID: e.MessageID, Name: raw.Name}
			first, there := model[identity]
			want := inbox.Stored
			switch {
			case there && bytes.Equal(first.Message.(inbox.Raw).Payload, raw.Payload):
				want = inbox.Duplicate
			case there:
				want = inbox.Mismatch
			default:
				model[identity] = e
			}
			if outcomes[i].Kind != want || outcomes[i].Identity != identity {
				t.Fatalf("entry %d is %v with %+v, want %v with %+v", i, outcomes[i].Kind, outcomes[i].Identity, want, identity)
			}
		}
	}
	compareWithModel(t, ctx, db, repo, model)
}

// compareWithModel claims everything, compares it, and empties the inbox.
func compareWithModel(t *rapid.T, ctx context.Context, db *bun.DB, repo *inbox.Repository, model map[inbox.Identity]inbox.Entry) {
	err := db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		claimed, err := repo.GetMany(ctx, tx, 1000)
		if err != nil {
			return err
		}
		if len(claimed) != len(model) {
			return fmt.Errorf("%d rows, want %d", len(claimed), len(model))
		}
		for _, c := range claimed {
			want, ok := model[c.Identity]
			if !ok {
				return fmt.Errorf("nobody sent %+v", c.Identity)
			}
			if payload := want.Message.(inbox.Raw).Payload; !bytes.Equal(c.Payload, payload) {
				return fmt.Errorf("payload: %s", cmp.Diff(payload, c.Payload))
			}
			if c.OrderingKey != want.OrderingKey || !maps.Equal(c.Metadata, want.Metadata) {
				return fmt.Errorf("key %q, metadata %q, want %q, %q", c.OrderingKey, c.Metadata, want.OrderingKey, want.Metadata)
			}
		}
		for _, table := range []string{"inbox_queue", "inbox_messages"} {
			if _, err := tx.NewRaw(`DELETE FROM ` + table).Exec(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
