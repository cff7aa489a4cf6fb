package inbox_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

// goroutine returns the name of the calling goroutine.
func goroutine() string {
	stack := make([]byte, 64)
	stack = stack[:runtime.Stack(stack, false)]
	name, _, _ := strings.Cut(string(stack), " [")
	return name
}

// awaitHandlers waits until there are so many goroutines for handler calls in the
// whole process.
func awaitHandlers(t *testing.T, want int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		var profile bytes.Buffer
		if err := pprof.Lookup("goroutine").WriteTo(&profile, 2); err != nil {
			t.Fatal(err)
		}
		got := strings.Count(profile.String(), "created by github.com/letterbox-go/letterbox/inbox.(*runners).")
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines for handler calls are left, want %d", got, want)
		}
	}
}

// Handler calls share goroutines as long as these behave, and none is left when
// the processor has ended. It is not parallel: it looks at the whole process.
func TestHandlerCallsShareGoroutines(t *testing.T) {
	test := func(t *testing.T, target target) {
		n := openNode(t, target, false)
		var mu sync.Mutex // for a call that is left behind
		var names []string
		labels := ""
		leave := make(chan struct{})
		n.before = func(ctx context.Context, id string) error {
			mu.Lock()
			names = append(names, goroutine())
			mu.Unlock()
			switch id {
			case "labelled":
				pprof.SetGoroutineLabels(pprof.WithLabels(ctx, pprof.Labels("message", "not mine")))
			case "looks":
				var profile bytes.Buffer
				if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
					return err
				}
				// Its own goroutine: those that were started meanwhile inherit labels.
				for record := range strings.SplitSeq(profile.String(), "\n\n") {
					if strings.Contains(record, "pprof.writeRuntimeProfile") {
						labels += record
					}
				}
			case "exits":
				runtime.Goexit()
			case "panics":
				panic("on purpose")
			case "fails":
				return errors.New("on purpose")
			case "hangs":
				<-leave
			}
			return nil
		}
		later := inbox.Backoff{Base: time.Hour, Max: time.Hour}
		run := func(ids ...string) (distinct map[string]int) {
			t.Helper()
			n.accept(t, ids...)
			mu.Lock()
			names = nil
			mu.Unlock()
			n.drain(t, n.mustProcessor(t, inbox.ProcessorConfig{
				Backoff: later, Timeout: 200 * time.Millisecond, HandlerGrace: 50 * time.Millisecond,
			}))
			mu.Lock()
			defer mu.Unlock()
			distinct = map[string]int{}
			for _, name := range names {
				distinct[name]++
			}
			return distinct
		}
		if got := run("a", "b", "labelled", "looks", "fails", "panics", "c"); len(got) != 1 {
			t.Errorf("%d goroutines for calls that return: %v", len(got), got)
		}
		if !strings.Contains(labels, "inbox.(*runners)") || strings.Contains(labels, "not mine") {
			t.Errorf("a label stays with the goroutine, or the profile was not taken:\n%s", labels)
		}
		if got := run("d", "exits", "e"); len(got) != 2 || names[0] == names[2] {
			t.Errorf("goroutines before, at and after a Goexit: %v", names)
		}
		awaitHandlers(t, 0)
		run("f", "hangs", "g")
		awaitHandlers(t, 1) // the one that hangs
		close(leave)
		awaitHandlers(t, 0)
	}
	t.Run("PostgreSQL", func(t *testing.T) { test(t, target{"pgx", testdb.Postgres(t)}) })
	t.Run("SQLite", func(t *testing.T) { test(t, target{"sqlite", testdb.SQLiteFile(t)}) })
}
