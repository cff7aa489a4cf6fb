package inbox

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// both fills a template whose SQL both databases understand: of the words that
// differ, {now} and {clock} become a time, and {ids} a list of numbers.
func (d *database) both(template string, ids ...int64) string {
	text := d.text(template)
	if d.dialect == sqliteDialect {
		now := "'" + sqliteTime(d.processClock()) + "'"
		text = strings.NewReplacer(
			"{now}", now, "{clock}", now, "{position}", "instr",
			"{for_update}", "", "{skip_locked}", "", "{of_queue}", "",
		).Replace(text)
	} else {
		text = strings.NewReplacer(
			"{position}", "strpos",
			"{for_update}", "FOR UPDATE", "{skip_locked}", "FOR UPDATE SKIP LOCKED", "{of_queue}", "FOR UPDATE OF q SKIP LOCKED",
		).Replace(text)
	}
	if strings.Contains(text, "{ids}") {
		text = strings.ReplaceAll(text, "{ids}", idList(ids))
	}
	return text
}

// idList writes ids as they stand between IN's brackets. None match no row.
func idList(ids []int64) string {
	if len(ids) == 0 {
		return "NULL"
	}
	return string(appendIDs(nil, ids))
}

func appendIDs(list []byte, ids []int64) []byte {
	for i, id := range ids {
		if i > 0 {
			list = append(list, ',')
		}
		list = strconv.AppendInt(list, id, 10)
	}
	return list
}

// processClock is the clock of SQLite, which runs in this process.
func (d *database) processClock() time.Time {
	if d.config.Clock != nil {
		return d.config.Clock()
	}
	return time.Now()
}

// timeText is how a time stands between quotes in a statement.
func (d *database) timeText(t time.Time) string {
	if d.dialect == sqliteDialect {
		return sqliteTime(t)
	}
	return t.UTC().Format(postgresTime)
}

// moment reads a time of either database; NULL is the zero time.
type moment struct{ time.Time }

// Scan implements sql.Scanner.
func (m *moment) Scan(value any) (err error) {
	switch value := value.(type) {
	case nil:
		m.Time = time.Time{}
	case time.Time:
		m.Time = value.UTC()
	case string:
		m.Time, err = parseSQLiteTime(value)
	case []byte:
		m.Time, err = parseSQLiteTime(string(value))
	default:
		return fmt.Errorf("a time stored as %T", value)
	}
	return err
}

// current is the database's clock.
func (d *database) current(ctx context.Context, q querier) (time.Time, error) {
	if d.dialect == sqliteDialect {
		return d.processClock(), nil
	}
	var now time.Time
	err := d.scan(ctx, q, &now, d.text(`SELECT {now}`))
	return now.UTC(), err
}

// postgresReading keeps the planner on the indexes that lists are made for:
// without fresh statistics it would rather read and hash all messages.
const postgresReading = `
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
	set_config('enable_mergejoin', 'off', true), set_config('jit', 'off', true)`

// postgresCounting is for what reads the whole queue.
const postgresCounting = `SELECT set_config('enable_seqscan', 'on', true)`

// reading runs queries of an operator, which must not take SQLite's write lock.
func (d *database) reading(ctx context.Context, fn func(ctx context.Context, q querier) error) error {
	if d.dialect == sqliteDialect {
		return fn(ctx, d.db.DB)
	}
	return d.inTransaction(ctx, txOptions{isolation: sql.LevelReadCommitted}, func(ctx context.Context, tx querier) error {
		if _, err := d.exec(ctx, tx, postgresReading); err != nil {
			return err
		}
		return fn(ctx, tx)
	})
}
