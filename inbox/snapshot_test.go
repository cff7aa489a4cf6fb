package inbox_test

import (
	"database/sql"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
)

// While somebody holds an old snapshot, nothing that was deleted since can be
// cleaned up. A claim behind the low-water mark does not walk over it again.
func TestAnOldSnapshotDoesNotMakeClaimsDearer(t *testing.T) {
	t.Parallel()
	const messages = 12_000
	n, sent := recorded(t)
	old, err := n.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer old.Rollback()
	if _, err := old.Exec(`SELECT count(*) FROM inbox_queue`); err != nil {
		t.Fatal(err)
	}
	for chunk := range slices.Chunk(taskIDs("m", messages), 1000) {
		n.accept(t, chunk...)
	}
	if got := n.drain(t, n.mustProcessor(t, inbox.ProcessorConfig{BatchSize: 10, BatchDuration: time.Minute})); got != messages {
		t.Fatalf("%d processed", got)
	}
	marked, ok := sent.find(func(s statement) bool {
		return strings.Contains(s.text, "CROSS JOIN LATERAL") && !strings.Contains(s.args[1], "-infinity")
	})
	if !ok {
		t.Fatal("no claim started at a mark")
	}
	n.accept(t, taskIDs("again", 10)...)
	near, text := n.explain(t, marked)
	if near.Rows == 0 {
		t.Fatalf("the claim finds nothing:\n%s", text)
	}
	far, _ := n.explain(t, sent.last(t, "-infinity"))
	t.Logf("%d buffers at the mark, %d from the beginning", near.Hit+near.Read, far.Hit+far.Read)
	if near.Hit+near.Read > 120 { // 10 rows and their messages
		t.Errorf("a claim at the mark touches %d buffers:\n%s", near.Hit+near.Read, text)
	}
	if far.Hit+far.Read < 2*(near.Hit+near.Read) {
		t.Errorf("the snapshot is not held: a claim from the beginning touches %d buffers only", far.Hit+far.Read)
	}
}
