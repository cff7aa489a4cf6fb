package doctor

import (
	"context"
	"fmt"
	"time"
)

// standbyTransactions is how far a standby or a live slot may hold vacuum back.
const standbyTransactions = 1_000_000

const snapshotRemedy = "While it lasts, vacuum cannot remove what was deleted after it began, and tables only grow. End it in its program, or with SELECT pg_terminate_backend(PID). " +
	"Set idle_in_transaction_session_timeout against forgotten ones."

// snapshots looks for transactions that hold vacuum back.
func (e *examination) snapshots(ctx context.Context) error {
	var rows []struct {
		Pid          int64
		Role         string
		Application  string
		State        string
		Query        string
		XactStart    *time.Time
		QueryStart   *time.Time
		Seconds      float64
		Transactions int64
	}
	if err := e.scan(ctx, &rows, postgresSnapshots, e.config.SnapshotAge.Microseconds(), standbyTransactions); err != nil || len(rows) == 0 {
		return err
	}
	severity := Warning
	var lines []string
	for _, r := range rows {
		severity = max(severity, graded(seconds(r.Seconds), e.config.SnapshotAge))
		line := fmt.Sprintf("pid %d, open for %s, %d transactions behind, %s, last query at %s, role %s, application %s",
			r.Pid, age(seconds(r.Seconds)), r.Transactions, quote(r.State), at(r.QueryStart), quote(r.Role), quote(r.Application))
		if e.config.ShowQueries {
			line += ", query " + quote(r.Query)
		}
		lines = append(lines, line)
	}
	e.find("old-snapshot", severity, plural(int64(len(rows)), "old transaction")+" holding vacuum back", snapshotRemedy, lines...)
	return nil
}

// prepared looks for transactions of the two-phase protocol that nobody ends.
func (e *examination) prepared(ctx context.Context) error {
	var rows []struct {
		Gid          string
		Owner        string
		Prepared     time.Time
		Transactions int64
		Seconds      float64
	}
	if err := e.scan(ctx, &rows, postgresPrepared, e.config.SnapshotAge.Microseconds()); err != nil || len(rows) == 0 {
		return err
	}
	severity := Warning
	var lines []string
	for _, r := range rows {
		severity = max(severity, graded(seconds(r.Seconds), e.config.SnapshotAge))
		lines = append(lines, fmt.Sprintf("%s of %s, prepared at %s, %d transactions behind", quote(r.Gid), quote(r.Owner), at(&r.Prepared), r.Transactions))
	}
	e.find("prepared-transactions", severity, plural(int64(len(rows)), "prepared transaction")+" left open",
		"They hold locks and vacuum until somebody says COMMIT PREPARED or ROLLBACK PREPARED. Ask their transaction manager first.", lines...)
	return nil
}

// slots looks for replication slots that hold vacuum back.
func (e *examination) slots(ctx context.Context) error {
	var rows []struct {
		Name    string
		Kind    string
		Active  bool
		Rows    int64
		Catalog int64
		Wal     float64
	}
	if err := e.scan(ctx, &rows, postgresSlots, standbyTransactions); err != nil || len(rows) == 0 {
		return err
	}
	var lines []string
	for _, r := range rows {
		use := "no consumer"
		if r.Active {
			use = "in use"
		}
		lines = append(lines, fmt.Sprintf("%s slot %s, %s: holds rows of %d and catalog rows of %d transactions, and %s of WAL",
			r.Kind, quote(r.Name), use, r.Rows, r.Catalog, size(r.Wal)))
	}
	e.find("replication-slots", Warning, plural(int64(len(rows)), "replication slot")+" holding vacuum back",
		"Bring the consumer back, or drop the slot: SELECT pg_drop_replication_slot(NAME).", lines...)
	return nil
}
