package inboxtest

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/letterbox-go/letterbox/inbox"
)

var acceptCases = []Case{
	{
		Name: "a message is stored once, a repeat is a duplicate and another body a mismatch",
		Rule: "One effect per identity; a mismatch is a report and leaves the stored row untouched.",
		Body: storedDuplicateMismatch,
	},
	{
		Name: "of twins in one batch the first is stored",
		Rule: "Repeats inside one batch are reported like any other, and ids are given in the order of the entries.",
		Body: twinsInOneBatch,
	},
	{
		Name: "the messages of one call are due in the order of its entries",
		Rule: "One worker processes what was accepted together in the order given, whatever the ids of the messages.",
		Body: dueInOrder,
	},
	{
		Name: "an accept whose commit fails says so and stores nothing",
		Rule: "An outcome is told only of what is durable: the database may refuse at the commit, behind the rows it has returned.",
		Body: commitRefused,
	},
	{
		Name: "the fingerprint decides what another body is",
		Rule: "An entry may bring its own fingerprint; without one on either side, a repeat is a duplicate.",
		Body: ownFingerprint,
	},
	{
		Name: "a new field of a Go type is no mismatch where the transport brings the fingerprint",
		Rule: "A deployment must not turn every redelivery into a mismatch.",
		Body: changedType,
	},
}

// statements is a hook that keeps what is sent.
type statements struct {
	mu    sync.Mutex
	texts []string
}

func (s *statements) BeforeQuery(ctx context.Context, event *bun.QueryEvent) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.texts = append(s.texts, event.Query)
	return ctx
}

func (s *statements) AfterQuery(context.Context, *bun.QueryEvent) {}

// sent returns the statements that contain part, and forgets all.
func (s *statements) sent(part string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	texts := slices.DeleteFunc(s.texts, func(text string) bool { return !strings.Contains(text, part) })
	s.texts = nil
	return texts
}

// watched returns a repository whose statements are kept.
func (e *Env) watched(t *testing.T, config inbox.Config) (*inbox.Repository, *statements) {
	t.Helper()
	seen := &statements{}
	config.DriverArgs = e.options.DriverArgs
	repo, err := inbox.NewRepository(e.DB.WithQueryHook(seen), e.Names, config)
	if err != nil {
		t.Fatal(err)
	}
	return repo, seen
}

// begun runs do in a transaction and commits it.
func (e *Env) begun(t *testing.T, do func(tx bun.Tx)) {
	t.Helper()
	tx, err := e.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	do(tx)
	if err := tx.Commit(); err != nil {
		t.Fatalf("commit: %v", err)
	}
}

// accepted stores entries with repo and checks what became of each.
func accepted(t *testing.T, repo *inbox.Repository, entries []inbox.Entry, want ...inbox.OutcomeKind) []inbox.Outcome {
	t.Helper()
	outcomes, err := repo.Accept(t.Context(), entries)
	if err != nil {
		t.Fatal(err)
	}
	checkKinds(t, outcomes, want...)
	return outcomes
}

func checkKinds(t *testing.T, outcomes []inbox.Outcome, want ...inbox.OutcomeKind) {
	t.Helper()
	kinds := make([]inbox.OutcomeKind, len(outcomes))
	for i, o := range outcomes {
		kinds[i] = o.Kind
		if (o.ID != 0) != (o.Kind == inbox.Stored) {
			t.Errorf("outcome %d is %v with the id %d", i, o.Kind, o.ID)
		}
	}
	if !slices.Equal(kinds, want) {
		t.Fatalf("outcomes %v, want %v", kinds, want)
	}
}

// messages is how many rows there are.
func (e *Env) messages(t *testing.T) int { return e.Count(t, `SELECT count(*) FROM inbox_messages`) }

func storedDuplicateMismatch(t *testing.T, e *Env) {
	entry := e.Entries("a")
	outcomes := accepted(t, e.Repo, entry, inbox.Stored)
	want := inbox.Identity{Source: "test", MessageID: "a", Name: "job"}
	if outcomes[0].Identity != want {
		t.Errorf("identity %+v, want %+v", outcomes[0].Identity, want)
	}
	before, row := e.Row(t, "a"), e.whole(t, "a")

	accepted(t, e.Repo, entry, inbox.Duplicate)
	other := e.Entries("a", "b", "a")
	other[0].Message = Job{ID: "a", Note: "another body"}
	other[0].OrderingKey, other[0].Metadata = "key", map[string]string{"k": "v"}
	outcomes = accepted(t, e.Repo, other, inbox.Mismatch, inbox.Stored, inbox.Duplicate)
	for i, id := range []string{"a", "b", "a"} {
		if outcomes[i].Identity.MessageID != id {
			t.Errorf("outcome %d is that of %q, want %q", i, outcomes[i].Identity.MessageID, id)
		}
	}
	if after := e.Row(t, "a"); !reflect.DeepEqual(after, before) {
		t.Errorf("the stored row changed from %+v to %+v", before, after)
	}
	if after := e.whole(t, "a"); after != row {
		t.Errorf("the stored row changed from %s to %s", row, after)
	}
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
	accepted(t, e.Repo, other, inbox.Mismatch, inbox.Duplicate, inbox.Duplicate)
	e.Expect(t, "a", Processed, 0)
	if n := e.Calls("a"); n != 1 {
		t.Errorf("%d handler calls", n)
	}
}

// whole is every column of a message, as text.
func (e *Env) whole(t *testing.T, messageID string) string {
	t.Helper()
	columns := `quote(id) || quote(ordering_key) || quote(payload) || quote(fingerprint) || quote(metadata) || quote(status) || quote(received_at)`
	if e.Postgres() {
		columns = `m::text`
	}
	var text string
	err := e.DB.NewRaw(`SELECT `+columns+` FROM inbox_messages m WHERE message_id = ?`, messageID).Scan(t.Context(), &text)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func dueInOrder(t *testing.T, e *Env) {
	e.Accept(t, "z", "a", "m", "b")
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
	e.expectOrder(t, "", "z", "a", "m", "b")

	entries := e.Entries("y", "c", "later", "n", "d")
	entries[2].Due = time.Now().Add(time.Hour)
	accepted(t, e.Repo, entries, inbox.Stored, inbox.Stored, inbox.Stored, inbox.Stored, inbox.Stored)
	e.Drain(t, e.Processor(t, inbox.ProcessorConfig{}))
	e.expectOrder(t, "", "z", "a", "m", "b", "y", "c", "n", "d")
	if n := e.Calls("later"); n != 0 {
		t.Errorf("what is due in an hour was handled %d times", n)
	}
}

func twinsInOneBatch(t *testing.T, e *Env) {
	entries := e.Entries("z", "a", "a", "m", "a", "z")
	entries[2].Message = Job{ID: "a", Note: "another body"}
	outcomes := accepted(t, e.Repo, entries,
		inbox.Stored, inbox.Stored, inbox.Mismatch, inbox.Stored, inbox.Duplicate, inbox.Duplicate)
	if a, z, m := outcomes[1].ID, outcomes[0].ID, outcomes[3].ID; z >= a || a >= m {
		t.Errorf("ids %d, %d, %d are not in the order of the entries", z, a, m)
	}
	row := e.Row(t, "a")
	if got, want := string(row.Payload), `{"id":"a"}`; got != want {
		t.Errorf("stored %s, want %s", got, want)
	}
	if row.ID != outcomes[1].ID {
		t.Errorf("the row has id %d, its outcome says %d", row.ID, outcomes[1].ID)
	}

	// The body that comes first wins, also when it is the greater one.
	entries = e.Entries("t", "t", "t")
	entries[0].Message = Job{ID: "t", Note: "zzz"}
	accepted(t, e.Repo, entries, inbox.Stored, inbox.Mismatch, inbox.Mismatch)
	if got, want := string(e.Row(t, "t").Payload), `{"id":"t","note":"zzz"}`; got != want {
		t.Errorf("stored %s, want %s", got, want)
	}
}

func commitRefused(t *testing.T, e *Env) {
	e.Exec(t, `CREATE TABLE parents (id INTEGER PRIMARY KEY)`)
	e.Exec(t, `CREATE TABLE children (parent INTEGER NOT NULL REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED)`)
	if e.DB.Dialect().Name() == dialect.SQLite {
		e.Exec(t, `CREATE TRIGGER orphan AFTER INSERT ON inbox_messages BEGIN INSERT INTO children VALUES (1); END`)
	} else {
		e.Exec(t, `CREATE FUNCTION orphan() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO children VALUES (1); RETURN NULL; END $$`)
		e.Exec(t, `CREATE TRIGGER orphan AFTER INSERT ON inbox_messages FOR EACH ROW EXECUTE FUNCTION orphan()`)
	}
	calls := [][]inbox.Entry{e.Entries("a"), e.Entries("b", "c")}
	for _, entries := range calls {
		if outcomes, err := e.Repo.Accept(t.Context(), entries); err == nil {
			t.Errorf("%d entries: no error, and outcomes %v", len(entries), outcomes)
		}
	}
	if n := e.messages(t); n != 0 {
		t.Errorf("%d messages are stored", n)
	}
	e.Exec(t, `INSERT INTO parents VALUES (1)`)
	accepted(t, e.Repo, calls[0], inbox.Stored)
	accepted(t, e.Repo, calls[1], inbox.Stored, inbox.Stored)
}

func ownFingerprint(t *testing.T, e *Env) {
	with := func(id, note string, fingerprint []byte) []inbox.Entry {
		return []inbox.Entry{{MessageID: id, Message: Job{ID: id, Note: note}, Fingerprint: fingerprint}}
	}
	one, two, none := []byte{0, '?', 0xff}, []byte{0, '?', 0xfe}, []byte{}

	accepted(t, e.Repo, with("own", "x", one), inbox.Stored)
	accepted(t, e.Repo, with("own", "another body", one), inbox.Duplicate)
	accepted(t, e.Repo, with("own", "x", two), inbox.Mismatch)
	accepted(t, e.Repo, with("own", "another body", none), inbox.Duplicate)

	accepted(t, e.Repo, with("none", "x", none), inbox.Stored)
	accepted(t, e.Repo, with("none", "another body", none), inbox.Duplicate)
	accepted(t, e.Repo, with("none", "another body", nil), inbox.Duplicate)
	accepted(t, e.Repo, with("none", "x", two), inbox.Duplicate)

	twins := slices.Concat(with("twin", "x", one), with("twin", "y", one), with("twin", "x", two), with("twin", "y", none))
	accepted(t, e.Repo, twins, inbox.Stored, inbox.Duplicate, inbox.Mismatch, inbox.Duplicate)

	accepted(t, e.Repo, with("long", "", make([]byte, 64)), inbox.Stored)
	var bad *inbox.EntryError
	if _, err := e.Repo.Accept(t.Context(), with("longer", "", make([]byte, 65))); !errors.As(err, &bad) || bad.Field != "fingerprint" {
		t.Errorf("a fingerprint of 65 bytes: %v", err)
	}
}

// grownJob is Job after somebody added a field.
type grownJob struct {
	ID    string `json:"id"`
	Note  string `json:"note,omitempty"`
	Added int    `json:"added"`
}

func changedType(t *testing.T, e *Env) {
	names := inbox.NewNameMap()
	inbox.Register[grownJob](names, "job")
	next, err := inbox.NewRepository(e.DB, names, inbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	received := []byte("hash of the bytes received")
	accepted(t, e.Repo, []inbox.Entry{
		{MessageID: "own", Message: Job{ID: "own"}, Fingerprint: received},
		{MessageID: "encoded", Message: Job{ID: "encoded"}},
	}, inbox.Stored, inbox.Stored)
	accepted(t, next, []inbox.Entry{
		{MessageID: "own", Message: grownJob{ID: "own"}, Fingerprint: received},
		{MessageID: "encoded", Message: grownJob{ID: "encoded"}},
	}, inbox.Duplicate, inbox.Mismatch)
}
