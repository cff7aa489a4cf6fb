package inbox

import "context"

// What a sweep would remove; the conditions are those of sweep_sql.go.
const (
	countEnded = `
SELECT count(*) FROM {messages} m
WHERE m.received_at < ? AND (m.status = 1 AND m.processed_at < ? OR m.status = 2 AND m.discarded_at < ?)`

	countEndedPayloads = countEnded + ` AND m.payload IS NOT NULL`

	countQueuedDead = `
SELECT count(*) FROM {queue} q CROSS JOIN {messages} m
WHERE m.id = q.id AND q.state = 2 AND q.due < ? AND m.status = 2 AND m.discarded_at IS NULL AND m.received_at < ?`

	countQueuedPending = `
SELECT count(*) FROM {queue} q CROSS JOIN {messages} m
WHERE m.id = q.id AND q.state <> 2 AND q.due < ? AND m.status = 0 AND m.received_at < ?`
)

// SweepDryRun counts what Sweep would remove now, and removes nothing. It reads
// all messages, which takes a while where there are millions.
func (r *Repository) SweepDryRun(ctx context.Context) (result SweepResult, err error) {
	now, err := r.current(ctx, r.db.DB)
	if err != nil {
		return result, r.wrap("sweep dry run", err)
	}
	count := func(template, cutoff string) (n int64) {
		if err != nil {
			return 0
		}
		args := []any{cutoff, cutoff, cutoff}
		if template == countQueuedDead || template == countQueuedPending {
			args = args[:2]
		}
		err = r.scan(ctx, r.db.DB, &n, r.both(template), args...)
		return n
	}
	retention := r.config.Retention
	var goWithRow int64 // payloads that are deleted with their rows
	if cutoff, on := before(now, retention.DedupeWindow); on {
		at := r.timeText(cutoff)
		result.Deleted, goWithRow = count(countEnded, at), count(countEndedPayloads, at)
		if cutoff, on := before(now, retention.DeadRetention); on {
			result.Dead = count(countQueuedDead, r.timeText(cutoff))
		}
		if cutoff, on := before(now, retention.PendingRetention); on {
			result.Pending = count(countQueuedPending, r.timeText(cutoff))
		}
		result.Deleted += result.Dead + result.Pending
	}
	if cutoff, on := before(now, retention.PayloadRetention); on {
		result.Payloads = max(count(countEndedPayloads, r.timeText(cutoff))-goWithRow, 0)
	}
	if err != nil {
		return SweepResult{}, r.wrap("sweep dry run", err)
	}
	return result, nil
}
