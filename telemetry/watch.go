package telemetry

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/letterbox-go/letterbox/inbox"
)

// restShare keeps the counting to a twentieth of the time: after a query that
// took a second, the database is left alone for twenty.
const restShare = 20

// Watch registers inbox.unfinished and inbox.oldest.age, which are read from the
// database when metrics are collected. The queries are bounded by
// Config.Timeout, and at least Config.Interval and twenty times their own
// duration apart, however often metrics are collected; in between the last
// numbers are repeated. When a query fails, its gauge is missing until one
// succeeds, and the error goes to otel.Handle.
//
// Every process that watches the same inbox reports the same numbers: aggregate
// them with max, or watch in one process. stop ends it, and waits for a query
// under way.
func Watch(repo *inbox.Repository, config Config) (stop func() error, err error) {
	if repo == nil {
		return nil, errNoRepository
	}
	if config.Names == nil {
		config.Names = repo.Names()
	}
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	w := &watch{repo: repo, labels: newLabels(&config), interval: config.Interval, timeout: config.Timeout, seen: map[series]bool{}}
	meter := config.meter()
	count, err := meter.Int64ObservableGauge(unfinished, metric.WithUnit(messageUnit),
		metric.WithDescription("Messages that are not processed, by name and status."))
	if err != nil {
		return nil, err
	}
	age, err := meter.Float64ObservableGauge(oldestAge, metric.WithUnit(secondsUnit),
		metric.WithDescription("How long the oldest due message has been waiting."))
	if err != nil {
		return nil, err
	}
	registration, err := meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		w.observe(ctx, o, count, age)
		return nil
	}, count, age)
	if err != nil {
		return nil, err
	}
	return func() error {
		err := registration.Unregister()
		w.close()
		return err
	}, nil
}

// watch asks the database now and then.
type watch struct {
	repo     *inbox.Repository
	labels   *labels
	interval time.Duration
	timeout  time.Duration

	mu     sync.Mutex
	closed bool
	next   time.Time // when to ask again
	counts map[series]int64
	seen   map[series]bool
	age    time.Duration
	aged   bool // age is known
}

type series struct{ name, status string }

func (w *watch) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
}

func (w *watch) observe(ctx context.Context, o metric.Observer, count metric.Int64Observable, age metric.Float64Observable) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	if began := time.Now(); !began.Before(w.next) {
		w.ask(ctx)
		took := time.Since(began)
		w.next = time.Now().Add(max(w.interval, restShare*took))
	}
	for s, n := range w.counts {
		o.ObserveInt64(count, n, metric.WithAttributeSet(attribute.NewSet(keyName.String(s.name), keyStatus.String(s.status))))
	}
	if w.aged {
		o.ObserveFloat64(age, w.age.Seconds())
	}
}

// ask reads both numbers. The age costs next to nothing and comes first; the
// counts read the queue, and may time out when that is very long.
func (w *watch) ask(ctx context.Context) {
	ages, cancel := context.WithTimeout(ctx, w.timeout)
	backlog, err := w.repo.Backlog(ages, 0)
	cancel()
	w.age, w.aged = backlog.OldestDue, err == nil
	w.counts = nil
	if err != nil {
		otel.Handle(err)
		return
	}
	counts, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	stats, err := w.repo.Stats(counts)
	if err != nil {
		otel.Handle(errors.Join(errors.New("telemetry: inbox.unfinished is not known"), err))
		return
	}
	w.counts = w.count(stats)
}

// count adds up what is unfinished, under names that may be labels. A series
// that was there goes down to zero and stays, so that an alert can tell none
// from unknown.
func (w *watch) count(stats inbox.Stats) map[series]int64 {
	counts := map[series]int64{}
	for s := range w.seen {
		counts[s] = 0
	}
	for name, n := range stats.Names {
		name = w.labels.name(name)
		counts[series{name, "pending"}] += n.Pending
		counts[series{name, "dead"}] += n.Dead
	}
	for s := range counts {
		w.seen[s] = true
	}
	return counts
}
