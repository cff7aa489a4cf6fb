package relay

import (
	"context"
	"sync"
	"time"
)

// closeTimeout is how long Close waits for what is still to be sent.
const closeTimeout = 2 * time.Second

// Outlet is a connection that notifications are sent on.
type Outlet interface {
	// Send notifies the listeners of each table, in a transaction of its own.
	Send(ctx context.Context, tables []string) error
	Close()
}

// Sender sends notifications in the background. The goroutine that does so
// exists while there is something to send and for Config.Idle after that; with
// it goes its connection.
type Sender struct {
	config Config
	open   func(ctx context.Context) (Outlet, error)
	more   chan struct{}

	mu      sync.Mutex
	due     map[string]bool // tables
	asked   int             // counts the calls of Notify
	taken   int             // asked, when some were last taken
	running bool
	closed  bool
	closing chan struct{}
	cancel  context.CancelFunc // of the goroutine
	group   sync.WaitGroup
}

// NewSender returns a Sender that opens its connections with open.
func NewSender(config Config, open func(ctx context.Context) (Outlet, error)) *Sender {
	return &Sender{
		config:  config,
		open:    open,
		more:    make(chan struct{}, 1),
		due:     map[string]bool{},
		closing: make(chan struct{}),
	}
}

// Notify has the listeners of table notified. It never blocks.
func (s *Sender) Notify(table string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.asked++
	if s.due[table] {
		return // the goroutine knows, or will see it
	}
	s.due[table] = true
	if s.running {
		signal(s.more)
		return
	}
	s.running = true
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.group.Go(func() {
		defer cancel()
		s.run(ctx)
	})
}

// Close sends what is due, waits for the goroutine to end, two seconds at most,
// and for good.
func (s *Sender) Close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.closing)
		if s.cancel != nil {
			defer time.AfterFunc(closeTimeout, s.cancel).Stop()
		}
	}
	s.mu.Unlock()
	s.group.Wait()
}

// run is the goroutine of the Sender.
func (s *Sender) run(ctx context.Context) {
	w := sending{Sender: s, outage: outage{log: s.config.Logger}}
	defer w.drop()
	for tables, shared := s.take(); tables != nil; tables, shared = s.take() {
		if err := w.send(ctx, tables); err != nil {
			if !w.failed(ctx, tables, err) {
				return
			}
			continue
		}
		w.outage.over(ctx, "wakeup: notifications are sent again")
		w.outage.fails = 0
		Sleep(ctx, s.config.pause(shared))
	}
}

// take returns the tables whose listeners are to be notified, and how many calls
// of Notify share that. It waits for one, for Config.Idle at most; nil ends the
// goroutine.
func (s *Sender) take() (tables []string, shared int) {
	timer := time.NewTimer(s.config.Idle)
	defer timer.Stop()
	for expired := false; ; {
		s.mu.Lock()
		if len(s.due) > 0 {
			tables = make([]string, 0, len(s.due))
			for table := range s.due {
				tables = append(tables, table)
			}
			clear(s.due)
			shared = s.asked - s.taken
			s.taken = s.asked
			s.mu.Unlock()
			return tables, shared
		}
		if expired || s.closed {
			s.running = false
			s.mu.Unlock()
			return nil, 0
		}
		s.mu.Unlock()
		select {
		case <-s.more:
		case <-s.closing:
		case <-timer.C:
			expired = true
		}
	}
}

// giveBack puts tables back that could not be notified, unless nobody has asked
// for a while, or the Sender is closed: then the goroutine ends.
func (s *Sender) giveBack(tables []string, giveUp func(asked int) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || giveUp(s.asked) {
		clear(s.due)
		s.running = false
		return false
	}
	for _, table := range tables {
		s.due[table] = true
	}
	return true
}

// sending is one run of a Sender's goroutine.
type sending struct {
	*Sender
	outlet  Outlet
	outage  outage
	asked   int       // calls of Notify at the last failure
	askedAt time.Time // when that had last grown
}

// send sends once. A connection that fails and was open already is replaced at
// once: after a restart of the server, or a long silence, that is no news.
func (w *sending) send(ctx context.Context, tables []string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, StepTimeout)
	defer cancel()
	for {
		fresh := w.outlet == nil
		if fresh {
			if w.outlet, err = w.open(ctx); err != nil {
				w.outlet = nil
				return err
			}
		}
		if err = w.outlet.Send(ctx, tables); err == nil {
			return nil
		}
		w.drop()
		if fresh || ctx.Err() != nil {
			return err
		}
	}
}

func (w *sending) drop() {
	if w.outlet != nil {
		w.outlet.Close()
		w.outlet = nil
	}
}

// failed waits before the next try; false when there will be none.
func (w *sending) failed(ctx context.Context, tables []string, err error) bool {
	w.outage.begin(ctx, "wakeup: cannot notify other processes; they find messages by polling", err)
	again := w.giveBack(tables, func(asked int) bool {
		if now := time.Now(); asked != w.asked {
			w.asked, w.askedAt = asked, now
		}
		return time.Since(w.askedAt) >= w.config.Idle
	})
	if !again {
		return false
	}
	timer := time.NewTimer(w.config.delay(w.outage.fails))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.closing:
	}
	return true
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
