package inbox

import (
	"context"
	"strings"
	"time"
)

// summaryRow is a message joined with its queue row, if it has one.
type summaryRow struct {
	ID               int64
	Source           string
	MessageID        string
	Name             string
	OrderingKey      string
	Status           int
	LastError        string
	ReceivedAt       moment
	ProcessedAt      moment
	DiscardedAt      moment
	PayloadRemovedAt moment
	Attempts         int
	Interruptions    int
	State            int // -1: not in the queue
	QueueKey         string
	Due              moment
}

func (r *summaryRow) summary() Summary {
	s := Summary{
		ID:               r.ID,
		Identity:         Identity{r.Source, r.MessageID, r.Name},
		OrderingKey:      r.OrderingKey,
		Kind:             kindOf(r.Status),
		Discarded:        !r.DiscardedAt.IsZero(),
		Parked:           r.State == stateParked,
		Blocking:         r.State == stateDead && r.QueueKey != "",
		Attempts:         r.Attempts,
		Interruptions:    r.Interruptions,
		LastError:        r.LastError,
		ReceivedAt:       r.ReceivedAt.Time,
		ProcessedAt:      r.ProcessedAt.Time,
		DiscardedAt:      r.DiscardedAt.Time,
		PayloadRemovedAt: r.PayloadRemovedAt.Time,
	}
	if s.Kind == Pending {
		s.Due = r.Due.Time
	} else if s.Kind == Dead {
		s.DiedAt = r.Due.Time // death sets it
	}
	return s
}

// conditions collects what a statement adds to its WHERE.
type conditions struct {
	text strings.Builder
	args []any
}

func (c *conditions) add(text string, args ...any) {
	c.text.WriteString(" AND ")
	c.text.WriteString(text)
	c.args = append(c.args, args...)
}

// fill puts the conditions in the place of a word of a template.
func (c *conditions) fill(template, word string) string {
	return strings.Replace(template, word, c.text.String(), 1)
}

// queued restricts q alone: that is what a window is made of.
func (f *Filter) queued() *conditions {
	c := &conditions{}
	switch {
	case f.Parked:
		c.add("q.state = 1")
	case f.Status == Dead:
		c.add("q.state = 2")
	case f.Status == Pending || f.Failing:
		c.add("q.state <> 2")
		if f.OrderingKey != "" { // only a skipped dead message has lost it
			c.add("q.ordering_key = ? AND q.ordering_key <> ''", f.OrderingKey)
		}
	}
	if f.Failing {
		c.add("q.attempts > 0")
	}
	if f.Name != "" {
		c.add("q.name = ?", f.Name)
	}
	return c
}

// status restricts m where a list does not begin with the queue.
func (f *Filter) status(c *conditions) {
	switch {
	case f.Discarded:
		c.add("m.status = 2 AND m.discarded_at IS NOT NULL")
	case f.Status == Dead:
		c.add("m.status = 2 AND m.discarded_at IS NULL")
	case f.Status == Processed:
		c.add("m.status = 1")
	case f.Status == Pending:
		c.add("m.status = 0")
	}
}

// described restricts m by what the queue does not know.
func (r *Repository) described(c *conditions, f Filter) {
	for _, field := range []struct{ column, value string }{
		{"m.source", f.Source},
		{"m.ordering_key", f.OrderingKey},
		{"m.message_id", f.MessageID},
	} {
		if field.value != "" {
			c.add(field.column+" = ?", field.value)
		}
	}
	if !f.ReceivedAfter.IsZero() {
		c.add("m.received_at >= ?", r.timeText(f.ReceivedAfter))
	}
	if !f.ReceivedBefore.IsZero() {
		c.add("m.received_at < ?", r.timeText(f.ReceivedBefore))
	}
	if f.ErrorContains != "" {
		c.add("{position}(lower(m.last_error), lower(?)) > 0", f.ErrorContains)
	}
}

// listRows finds one page. The window comes first: what is deleted between the
// two statements makes the page shorter, and hides nothing.
func (r *Repository) listRows(ctx context.Context, q querier, f Filter, page Page) (rows []summaryRow, next int64, err error) {
	var window struct{ Low, Count int64 }
	var size int64
	switch {
	case f.MessageID != "":
		rows, err = r.listIdentities(ctx, q, f, page)
	case f.queuedOnly():
		size = listWindowQueue
		rows, err = r.listQueued(ctx, q, f, page, &window.Low, &window.Count)
	default:
		size = listWindow
		rows, err = r.listHistory(ctx, q, f, page, &window.Low, &window.Count)
	}
	switch {
	case err != nil:
		return nil, 0, err
	case len(rows) > page.Limit:
		rows = rows[:page.Limit]
		next = rows[len(rows)-1].ID
	case size > 0 && window.Count == size:
		next = window.Low
	}
	return rows, next, nil
}

// listQueued looks among unfinished and dead messages.
func (r *Repository) listQueued(ctx context.Context, q querier, f Filter, page Page, low, count *int64) (rows []summaryRow, err error) {
	queued, described := f.queued(), &conditions{}
	r.described(described, f)
	args := append(append([]any{page.Before}, queued.args...), listWindowQueue)
	if err := r.window(ctx, q, low, count, queued.fill(windowQueued, "{queued}"), args); err != nil || *count == 0 {
		return nil, err
	}
	args = append(append([]any{*low, page.Before}, queued.args...), listWindowQueue)
	args = append(append(args, described.args...), page.Limit+1)
	err = r.scan(ctx, q, &rows, r.both(described.fill(queued.fill(listQueued, "{queued}"), "{conditions}")), args...)
	return rows, err
}

// listHistory looks among all messages.
func (r *Repository) listHistory(ctx context.Context, q querier, f Filter, page Page, low, count *int64) (rows []summaryRow, err error) {
	if err := r.window(ctx, q, low, count, windowMessages, []any{page.Before, listWindow}); err != nil || *count == 0 {
		return nil, err
	}
	c := &conditions{}
	f.status(c)
	if f.Name != "" {
		c.add("m.name = ?", f.Name)
	}
	r.described(c, f)
	args := append(append([]any{*low, page.Before}, c.args...), page.Limit+1)
	err = r.scan(ctx, q, &rows, r.both(c.fill(listMessages, "{conditions}")), args...)
	return rows, err
}

func (r *Repository) window(ctx context.Context, q querier, low, count *int64, template string, args []any) error {
	var window struct{ Low, Count int64 }
	err := r.scan(ctx, q, &window, r.both(template), args...)
	*low, *count = window.Low, window.Count
	return err
}

// listIdentities looks a message id up along the primary key.
func (r *Repository) listIdentities(ctx context.Context, q querier, f Filter, page Page) (rows []summaryRow, err error) {
	template, args := listIdentity, []any{f.MessageID, page.Before}
	if f.Source != "" {
		template, args = listIdentityOfSource, []any{f.Source, f.MessageID, page.Before}
	}
	c := &conditions{}
	if f.queuedOnly() {
		c = f.queued()
		c.add("q.id IS NOT NULL")
	}
	f.status(c)
	if f.Name != "" {
		c.add("m.name = ?", f.Name)
	}
	r.described(c, f)
	args = append(append(args, c.args...), page.Limit+1)
	err = r.scan(ctx, q, &rows, r.both(c.fill(template, "{conditions}")), args...)
	return rows, err
}

// deadAfter finds dead messages that match, upwards from an id, in one window.
// high is where the next one begins.
func (r *Repository) deadAfter(ctx context.Context, f Filter, after int64) (ids []int64, high int64, more bool, err error) {
	err = r.reading(ctx, func(ctx context.Context, q querier) error {
		queued, described := f.queued(), &conditions{}
		args := append(append([]any{after}, queued.args...), retryWindow)
		if err := r.scan(ctx, q, &ids, r.both(queued.fill(windowDead, "{queued}")), args...); err != nil || len(ids) == 0 {
			return err
		}
		high, more = ids[len(ids)-1], len(ids) == retryWindow
		if r.described(described, f); len(described.args) == 0 {
			return nil
		}
		window := ids
		ids = nil
		return r.scan(ctx, q, &ids, r.both(described.fill(matchDead, "{conditions}"), window...), described.args...)
	})
	return ids, high, more, err
}

func (r *Repository) detail(ctx context.Context, q querier, id int64) (Detail, error) {
	var rows []struct {
		summaryRow
		Payload     []byte
		Fingerprint []byte
		Metadata    string
	}
	if err := r.scan(ctx, q, &rows, r.both(detailOf), id); err != nil {
		return Detail{}, err
	}
	if len(rows) == 0 {
		return Detail{}, ErrNotFound
	}
	row := rows[0]
	d := Detail{Summary: row.summary(), RawMetadata: row.Metadata, Fingerprint: row.Fingerprint, Payload: row.Payload}
	if metadata, err := decodeMetadata(row.Metadata); err == nil {
		d.Metadata = metadata
	}
	if d.Kind == Pending && d.OrderingKey != "" {
		var earlier []int64
		if err := r.scan(ctx, q, &earlier, r.both(blockerOf), d.OrderingKey, d.OrderingKey, id); err != nil {
			return Detail{}, err
		}
		if len(earlier) > 0 {
			d.BlockedBy = earlier[0]
		}
	}
	var attempts []struct {
		Number    int
		StartedAt moment
		Duration  int64
		Processor string
		Error     string
	}
	if err := r.scan(ctx, q, &attempts, r.both(attemptsOf), id); err != nil {
		return Detail{}, err
	}
	for _, a := range attempts {
		d.History = append(d.History, AttemptRecord{
			Number: a.Number, StartedAt: a.StartedAt.Time, Duration: time.Duration(a.Duration) * time.Microsecond,
			Processor: a.Processor, Error: a.Error,
		})
	}
	return d, nil
}
