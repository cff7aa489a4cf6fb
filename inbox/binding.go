package inbox

import (
	"context"
	"database/sql"
	"encoding/hex"
	"slices"
	"strings"
)

// bound runs a query through bun, hooks included, with arguments that the driver
// binds. bun itself would write them into the text. Only strings and bytes mean
// the same to every driver; arrays go as text, which PostgreSQL casts, where
// Config.DriverArgs does not tell that the driver takes slices.
func (s *postgres) bound(ctx context.Context, q querier, dest any, query string, args ...any) error {
	note, err := s.sizeNote(ctx, q)
	if err != nil {
		return err
	}
	return s.scan(ctx, binding{q, note, append(slices.Clip(s.config.DriverArgs), args...)}, dest, query)
}

// boundRow is bound for one row at most, whose columns are text.
func (s *postgres) boundRow(ctx context.Context, q querier, query string, args ...any) ([]string, error) {
	note, err := s.sizeNote(ctx, q)
	if err != nil {
		return nil, err
	}
	return s.firstRow(ctx, q, query+note, append(slices.Clip(s.config.DriverArgs), args...)...)
}

// binding adds to a text what bun shall not see.
type binding struct {
	querier
	note string
	args []any
}

func (b binding) QueryContext(ctx context.Context, query string, _ ...any) (*sql.Rows, error) {
	return b.querier.QueryContext(ctx, query+b.note, b.args...)
}

func (b binding) ExecContext(ctx context.Context, query string, _ ...any) (sql.Result, error) {
	return b.querier.ExecContext(ctx, query+b.note, b.args...)
}

// texts is an array of strings as an argument.
func (s *postgres) texts(values []string) any {
	if len(s.config.DriverArgs) > 0 {
		return values
	}
	return textArray(values)
}

// blobs is an array of bytes as an argument.
func (s *postgres) blobs(values [][]byte) any {
	if len(s.config.DriverArgs) > 0 {
		return values
	}
	return byteaArray(values)
}

// idArray is the text form of an array of ids.
func idArray(ids []int64) string {
	return string(append(appendIDs([]byte{'{'}, ids), '}'))
}

// textArray is the text form of an array:
// https://www.postgresql.org/docs/current/arrays.html#ARRAYS-IO
func textArray(values []string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, value := range values {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('"')
		for rest := value; rest != ""; {
			at := strings.IndexAny(rest, `"\\`)
			if at < 0 {
				b.WriteString(rest)
				break
			}
			b.WriteString(rest[:at])
			b.WriteByte('\\')
			b.WriteByte(rest[at])
			rest = rest[at+1:]
		}
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}

// byteaArray is the same for bytes, in hex.
func byteaArray(values [][]byte) string {
	size := 2
	for _, value := range values {
		size += 2*len(value) + 6
	}
	b := append(make([]byte, 0, size), '{')
	for i, value := range values {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `"\\x`...)
		b = append(hex.AppendEncode(b, value), '"')
	}
	return string(append(b, '}'))
}
