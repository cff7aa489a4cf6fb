package inbox_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

func TestEntryError(t *testing.T) {
	t.Parallel()

	t.Run("it names the entry and the field and never shows the value", func(t *testing.T) {
		t.Parallel()
		names := inbox.NewNameMap()
		inbox.Register[orderPlaced](names, "placed")
		// Never migrated: an entry is refused before any SQL.
		repo, err := inbox.NewRepository(testdb.SQLite(t), names, inbox.Config{})
		if err != nil {
			t.Fatal(err)
		}
		secret := "4111-1111\x00"
		for field, entry := range map[string]inbox.Entry{
			"message id":   {MessageID: secret, Message: orderPlaced{}},
			"source":       {MessageID: "1", Source: secret, Message: orderPlaced{}},
			"ordering key": {MessageID: "1", OrderingKey: secret, Message: orderPlaced{}},
			"name":         {MessageID: "1", Message: inbox.Raw{Name: secret}},
			"metadata":     {MessageID: "1", Message: orderPlaced{}, Metadata: map[string]string{secret + "\xff": ""}},
		} {
			_, err := repo.Accept(t.Context(), []inbox.Entry{{MessageID: "0", Message: orderPlaced{}}, entry})
			var bad *inbox.EntryError
			if !errors.As(err, &bad) || bad.Index != 1 || bad.Field != field {
				t.Errorf("%s: %v", field, err)
				continue
			}
			if text := err.Error(); strings.Contains(text, "4111") || !strings.HasPrefix(text, "inbox: entry 1: "+field+": ") {
				t.Errorf("%s: the text is %q", field, text)
			}
		}
	})
}

func TestOutcomeKind(t *testing.T) {
	t.Parallel()
	for kind, want := range map[inbox.OutcomeKind]string{
		inbox.Stored: "stored", inbox.Duplicate: "duplicate", inbox.Mismatch: "mismatch", 0: "OutcomeKind(0)", 9: "OutcomeKind(9)",
	} {
		if got := kind.String(); got != want {
			t.Errorf("%d is %q, want %q", uint8(kind), got, want)
		}
	}
}

func TestNewMessageID(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 1000 {
		id := inbox.NewMessageID()
		parsed, err := uuid.Parse(id)
		if err != nil || parsed.Version() != 7 || seen[id] {
			t.Fatalf("%q: version %d, seen %v, %v", id, parsed.Version(), seen[id], err)
		}
		seen[id] = true
	}
}

func TestNewRepository(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	names := inbox.NewNameMap()

	t.Run("every problem of a config is named at once", func(t *testing.T) {
		t.Parallel()
		_, err := inbox.NewRepository(db, names, inbox.Config{
			Schema: "a\x00", Prefix: strings.Repeat("x", 60), MaxPayload: -1, MaxBatch: -1, MaxBatchBytes: -1, MaxIdentifier: 891, LockTimeout: -1,
		})
		if err == nil {
			t.Fatal("no error")
		}
		for _, field := range []string{"Schema", "Prefix", "MaxPayload", "MaxBatch", "MaxBatchBytes", "MaxIdentifier", "LockTimeout"} {
			if !strings.Contains(err.Error(), "inbox: config: "+field+": ") {
				t.Errorf("%s is not named in %q", field, err)
			}
		}
	})

	t.Run("what cannot work is refused", func(t *testing.T) {
		t.Parallel()
		for name, c := range map[string]struct {
			db     *bun.DB
			names  *inbox.NameMap
			config inbox.Config
		}{
			"no database":           {nil, names, inbox.Config{}},
			"no names":              {db, nil, inbox.Config{}},
			"a schema on SQLite":    {db, names, inbox.Config{Schema: "main"}},
			"a prefix with a mark":  {db, names, inbox.Config{Prefix: "a?b"}},
			"a prefix with a slash": {db, names, inbox.Config{Prefix: `a\b`}},
			"a negative identifier": {db, names, inbox.Config{MaxIdentifier: -1}},
		} {
			if _, err := inbox.NewRepository(c.db, c.names, c.config); err == nil {
				t.Errorf("%s: no error", name)
			}
		}
	})
}
