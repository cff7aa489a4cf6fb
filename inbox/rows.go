package inbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
)

// eachRow runs a query that bun does not format, its hooks included, and scans row
// by row: bun would look up where each column belongs.
func (d *database) eachRow(ctx context.Context, q querier, query string, args []any, scan func(*sql.Rows) error) error {
	send := func(ctx context.Context, query string) error {
		rows, err := q.QueryContext(ctx, query, args...)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			if err := scan(rows); err != nil {
				return err
			}
		}
		return errors.Join(rows.Err(), rows.Close())
	}
	_, err := d.db.NewRaw(query).Conn(sender(send)).Exec(ctx)
	return err
}

// firstRow runs a query that bun does not format, its hooks included, and returns
// the columns of the first row, which have to be text. nil: there is no row.
func (d *database) firstRow(ctx context.Context, q querier, query string, args ...any) (row []string, err error) {
	send := func(ctx context.Context, query string) (err error) {
		row, err = queryFirst(ctx, q, query, args)
		return err
	}
	_, err = d.db.NewRaw(query).Conn(sender(send)).Exec(ctx)
	return row, err
}

func queryFirst(ctx context.Context, q querier, query string, args []any) ([]string, error) {
	if pool, ok := q.(*sql.DB); ok {
		row, err := askDriver(ctx, pool, query, args)
		if !errors.Is(err, driver.ErrSkip) && !errors.Is(err, driver.ErrBadConn) {
			return row, err
		}
		// It cannot, or has sent nothing, since the connection was a dead one.
	}
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil || !rows.Next() {
		return nil, errors.Join(err, rows.Err())
	}
	row, into := make([]string, len(columns)), make([]any, len(columns))
	for i := range row {
		into[i] = &row[i]
	}
	return row, errors.Join(rows.Scan(into...), rows.Close())
}

// askDriver does without *sql.Rows, which starts a goroutine to watch ctx: that
// takes a tenth of a short statement's time, and the driver watches ctx too.
func askDriver(ctx context.Context, pool *sql.DB, query string, args []any) (row []string, err error) {
	conn, err := pool.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	err = conn.Raw(func(conn any) error {
		queryer, ok := conn.(driver.QueryerContext)
		if !ok {
			return driver.ErrSkip
		}
		values, err := namedValues(conn, args)
		if err != nil {
			return err
		}
		rows, err := queryer.QueryContext(ctx, query, values)
		if err != nil {
			return err
		}
		row, err = readFirst(rows)
		return errors.Join(err, rows.Close())
	})
	return row, err
}

// namedValues converts arguments as database/sql does.
func namedValues(conn any, args []any) ([]driver.NamedValue, error) {
	checker, checks := conn.(driver.NamedValueChecker)
	values := make([]driver.NamedValue, len(args))
	for i, arg := range args {
		value := driver.NamedValue{Ordinal: i + 1, Value: arg}
		err := driver.ErrSkip
		if checks {
			err = checker.CheckNamedValue(&value)
		}
		if errors.Is(err, driver.ErrSkip) {
			value.Value, err = driver.DefaultParameterConverter.ConvertValue(arg)
		}
		if err != nil {
			return nil, fmt.Errorf("argument %d: %w", i+1, err)
		}
		values[i] = value
	}
	return values, nil
}

// readFirst reads to the end: an error of the commit comes behind the last row.
func readFirst(rows driver.Rows) (row []string, err error) {
	values := make([]driver.Value, len(rows.Columns()))
	for err = rows.Next(values); err == nil; err = rows.Next(values) {
		if row != nil {
			continue
		}
		if row, err = asTexts(values); err != nil {
			return nil, err
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, err
	}
	return row, nil
}

func asTexts(values []driver.Value) ([]string, error) {
	row := make([]string, len(values))
	for i, value := range values {
		switch value := value.(type) {
		case string:
			row[i] = value
		case []byte:
			row[i] = string(value)
		default:
			return nil, fmt.Errorf("column %d is a %T, want text", i+1, value)
		}
	}
	return row, nil
}
