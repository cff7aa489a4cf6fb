package wakeup_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/letterbox-go/letterbox/inbox/inboxtest"
	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/wakeup"
)

// pgbouncer starts one in front of a database and returns the URL through it.
func pgbouncer(t *testing.T, dsn, mode string) string {
	t.Helper()
	// One server connection is the hardest case: whatever is sent meets it.
	size := map[string]int{"transaction": 1, "session": 10}[mode]
	return testdb.StartPooler(t, dsn, testdb.PoolerConfig{Mode: mode, Size: size}).Through(t, dsn)
}

func TestPgBouncer(t *testing.T) {
	t.Parallel()
	t.Run("in transaction mode is found out", func(t *testing.T) {
		t.Parallel()
		dsn := migrated(t)
		log := &buffer{}
		w := openWaker(t, pgbouncer(t, dsn, "transaction"), wakeup.Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
		listening(t, w)
		inboxtest.Eventually(t, "there is a warning", func() bool { return strings.Contains(log.String(), "notifications do not arrive") })
		if got := strings.Count(log.String(), "\n"); got != 1 {
			t.Errorf("%d lines, want one:\n%s", got, log)
		}
	})
	t.Run("in session mode works, also as the way that notifications are sent", func(t *testing.T) {
		t.Parallel()
		dsn := migrated(t)
		through := pgbouncer(t, dsn, "session")
		w, other := openWaker(t, through, wakeup.Config{}), openWaker(t, through, wakeup.Config{})
		count := listening(t, w)
		other.Notify(table)
		inboxtest.Eventually(t, "a notification wakes", func() bool { return count.Load() > 0 })
	})
	t.Run("in transaction mode may be the way that notifications are sent", func(t *testing.T) {
		t.Parallel()
		dsn := migrated(t)
		w, other := openWaker(t, dsn, wakeup.Config{}), openWaker(t, pgbouncer(t, dsn, "transaction"), wakeup.Config{})
		count := listening(t, w)
		other.Notify(table)
		inboxtest.Eventually(t, "a notification wakes", func() bool { return count.Load() > 0 })
	})
}

// buffer is one for several writers.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
