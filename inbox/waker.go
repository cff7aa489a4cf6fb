package inbox

import (
	"context"
	"sync"
	"time"
)

// Waker carries wake-ups between processes, so that a processor looks at once
// when another process has committed messages, instead of at its next poll.
// It only makes things faster: a Waker that loses wake-ups, or stands still,
// costs nothing but the rest of a PollInterval. Package wakeup has one for
// PostgreSQL.
//
// table is the quoted, qualified name of the inbox's table of messages, and
// tells inboxes apart. All methods are called from several goroutines.
type Waker interface {
	// Notify tells the listeners of other processes that messages were
	// committed. It never blocks: it runs in every call of Accept. Calls in
	// short succession may become one. What goes wrong is the Waker's to log.
	Notify(table string)
	// Listen calls wake as soon as it listens, after notifications of other
	// processes (one call may stand for many), and after every reconnection:
	// something may have been committed meanwhile. It blocks until ctx ends and
	// returns nil then; an error says that it has given up for good. wake never
	// blocks.
	Listen(ctx context.Context, table string, wake func()) error
}

// listenWait is how long Run waits for the Waker to listen before the workers
// start.
const listenWait = 2 * time.Second

// listen wakes a worker when other processes have committed, until ctx ends. It
// returns as soon as the Waker listens, and after listenWait at the latest.
func (p *Processor) listen(ctx context.Context, group *sync.WaitGroup) {
	waker := p.repo.config.Waker
	if waker == nil {
		return
	}
	listening, opened := context.WithCancel(ctx)
	group.Go(func() {
		defer opened()
		err := waker.Listen(ctx, p.repo.table("messages"), func() {
			opened()
			signal(p.wake)
		})
		if err != nil && ctx.Err() == nil {
			p.log.WarnContext(ctx, "inbox: no more wake-ups from other processes; polling goes on", "error", errorText(err))
		}
	})
	_ = sleep(listening, listenWait)
}
