package dashboard

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
)

const (
	jobsRunning    = 4  // at once
	jobsRemembered = 20 // including those that run
)

// jobs retry many messages in the background. They belong to the handler.
type jobs struct {
	mu  sync.Mutex
	all []*job // the newest first
}

// job retries all that match a filter.
type job struct {
	id     string
	cancel context.CancelFunc

	mu     sync.Mutex // guards status
	status jobStatus
}

// jobStatus is what is known of a job.
type jobStatus struct {
	ID        string
	Actor     string
	Form      filterForm
	PerSecond int
	Limit     int64
	Total     int64 // counted before it began
	Done      int64
	StartedAt time.Time
	EndedAt   time.Time // zero while it runs
	Stopped   bool      // before its end: by an operator, or with the program
	Problem   string
}

// Running reports that it has not ended.
func (s jobStatus) Running() bool { return s.EndedAt.IsZero() }

// Most is the number that Done grows to: messages may have died since the count.
func (s jobStatus) Most() int64 { return max(s.Total, s.Done, 1) }

// Percent of what was counted.
func (s jobStatus) Percent() int64 { return s.Done * 100 / s.Most() }

// Took is how long it has run.
func (s jobStatus) Took() time.Duration {
	if s.Running() {
		return time.Since(s.StartedAt)
	}
	return s.EndedAt.Sub(s.StartedAt)
}

// Left is how long the rest takes at this rate, 0 if that is not known.
func (s jobStatus) Left() time.Duration {
	if !s.Running() || s.Done == 0 {
		return 0
	}
	return time.Duration(float64(s.Took()) * float64(s.Most()-s.Done) / float64(s.Done)).Round(time.Second)
}

var errTooManyJobs = errors.New("dashboard: too many jobs")

// start begins a job that outlives the request.
func (j *jobs) start(repo *inbox.Repository, status jobStatus, done <-chan struct{}) (jobStatus, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	running := 0
	for _, other := range j.all {
		if other.now().Running() {
			running++
		}
	}
	if running >= jobsRunning {
		return jobStatus{}, errTooManyJobs
	}
	ctx, cancel := context.WithCancel(inbox.WithActor(context.Background(), status.Actor))
	status.ID, status.StartedAt = rand.Text()[:12], time.Now().UTC()
	started := &job{id: status.ID, cancel: cancel, status: status}
	j.all = append([]*job{started}, j.all...)
	j.forget()
	go func() {
		select {
		case <-done: // nil: never
			cancel()
		case <-ctx.Done():
		}
	}()
	go started.run(ctx, repo)
	return status, nil
}

// forget drops the oldest ended jobs that are too many.
func (j *jobs) forget() {
	for i := len(j.all) - 1; i >= 0 && len(j.all) > jobsRemembered; i-- {
		if !j.all[i].now().Running() {
			j.all = slices.Delete(j.all, i, i+1)
		}
	}
}

// run retries in small transactions, so that the rate is even and a stop is
// quick.
func (j *job) run(ctx context.Context, repo *inbox.Repository) {
	defer j.cancel()
	s := j.now()
	n, err := repo.RetryAll(ctx, s.Form.Filter, inbox.RetryAllOptions{
		Limit: s.Limit, PerSecond: s.PerSecond, BatchSize: min(max(s.PerSecond/4, 1), 500), Progress: j.progress,
	})
	j.mu.Lock()
	defer j.mu.Unlock()
	j.status.Done, j.status.EndedAt = n, time.Now().UTC()
	switch {
	case err == nil:
	case ctx.Err() != nil:
		j.status.Stopped = true
	default:
		_, j.status.Problem, _ = answerOf(err)
	}
}

func (j *job) progress(done int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.status.Done = done
}

func (j *job) now() jobStatus {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.status
}

// list returns all that are remembered, the newest first.
func (j *jobs) list() []jobStatus {
	j.mu.Lock()
	defer j.mu.Unlock()
	list := make([]jobStatus, len(j.all))
	for i, job := range j.all {
		list[i] = job.now()
	}
	return list
}

func (j *jobs) running() []jobStatus {
	return slices.DeleteFunc(j.list(), func(s jobStatus) bool { return !s.Running() })
}

func (j *jobs) find(id string) (*job, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, job := range j.all {
		if job.id == id {
			return job, true
		}
	}
	return nil, false
}
