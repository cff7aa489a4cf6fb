package inbox

import (
	"context"
	"fmt"
	"math/bits"
	"sync/atomic"
	"time"
)

const (
	// sizesEvery is how often the tables' sizes are looked up.
	sizesEvery = time.Second

	postgresSizes = `
SELECT COALESCE(pg_relation_size(to_regclass('{messages_text}')), 0) AS messages,
	COALESCE(pg_relation_size(to_regclass('{queue_text}')), 0) AS queue`
)

// sizes tells roughly how large the tables are. PostgreSQL plans a prepared
// statement for the sizes that the tables have at that time, and keeps the plan:
// one that was made while the queue was empty would read all of it when it is
// full, until the next ANALYZE.
type sizes struct {
	next atomic.Int64 // when to look again, in nanoseconds since 1970
	note atomic.Value // string
}

// sizeNote returns a comment that changes when a table has become four times as
// large or small. A statement with another text has another plan.
func (s *postgres) sizeNote(ctx context.Context, q querier) (string, error) {
	if len(s.config.DriverArgs) == 0 {
		return "", nil
	}
	now := time.Now()
	if next := s.sizes.next.Load(); now.UnixNano() >= next && s.sizes.next.CompareAndSwap(next, now.Add(sizesEvery).UnixNano()) {
		var bytes struct{ Messages, Queue uint64 }
		if err := s.scan(ctx, q, &bytes, s.text(postgresSizes)); err != nil {
			return "", err
		}
		s.sizes.note.Store(fmt.Sprintf(" /* sizes %d %d */", magnitude(bytes.Messages), magnitude(bytes.Queue)))
	}
	note, _ := s.sizes.note.Load().(string)
	return note, nil
}

// magnitude is one more for four times as many pages.
func magnitude(bytes uint64) int { return bits.Len64(bytes>>13) / 2 }
