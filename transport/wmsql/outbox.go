package wmsql

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"

	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/uptrace/bun"
)

// Schema is watermill-sql's default schema with one difference: JSON is sent as text.
// The default sends it as bytes, which pgx in its exec mode and bun declare to be
// bytea, and PostgreSQL refuses (22P02). Tables and stored rows are the same, so the
// two can be mixed. Use it for publishers; subscribers may have either.
type Schema struct {
	wmsql.DefaultPostgreSQLSchema
}

// InsertQuery is that of the default schema.
func (s Schema) InsertQuery(topic string, messages message.Messages) (wmsql.Query, error) {
	query, err := s.DefaultPostgreSQLSchema.InsertQuery(topic, messages)
	if err != nil {
		return wmsql.Query{}, err
	}
	const columns = 3 // uuid, payload, metadata
	if len(query.Args) != columns*len(messages) {
		return wmsql.Query{}, fmt.Errorf("wmsql: %d arguments for %d messages", len(query.Args), len(messages))
	}
	payloadIsText := strings.HasPrefix(strings.ToUpper(strings.TrimSpace(s.PayloadColumnType(topic))), "JSON")
	for i, arg := range query.Args {
		if i%columns == 2 || i%columns == 1 && payloadIsText {
			query.Args[i] = asText(arg)
		}
	}
	return query, nil
}

func asText(arg any) any {
	switch arg := arg.(type) {
	case []byte:
		return string(arg)
	case message.Payload:
		return string(arg)
	}
	return arg
}

// Executor lets a watermill-sql publisher write to a bun handle: in a handler,
//
//	watermillsql.NewPublisher(wmsql.Executor(ctx, inbox.DB(ctx, db)), config, logger)
//
// publishes in the transaction of the inbox: what is published commits with the
// handler's other writes and the message's status, or not at all. It translates the
// placeholders $1, $2, .. to bun's, and uses ctx, since publishers of watermill-sql
// have none of their own.
//
// Make a publisher per call; it is cheap and belongs to that transaction. Create the
// topic's table beforehand: AutoInitializeSchema would do it in the handler.
func Executor(ctx context.Context, db bun.IDB) wmsql.ContextExecutor { return executor{ctx, db} }

// executor holds the context that the caller's library leaves out.
type executor struct {
	ctx context.Context //nolint:containedctx // see Executor
	db  bun.IDB
}

func (e executor) Exec(query string, args ...any) (sql.Result, error) {
	return e.ExecContext(e.ctx, query, args...)
}

func (e executor) Query(query string, args ...any) (*sql.Rows, error) {
	return e.QueryContext(e.ctx, query, args...)
}

func (e executor) QueryRow(query string, args ...any) *sql.Row {
	return e.QueryRowContext(e.ctx, query, args...)
}

func (e executor) ExecContext(_ context.Context, query string, args ...any) (sql.Result, error) {
	query, args = translate(query, args)
	return e.db.ExecContext(e.ctx, query, args...)
}

func (e executor) QueryContext(_ context.Context, query string, args ...any) (*sql.Rows, error) {
	query, args = translate(query, args)
	return e.db.QueryContext(e.ctx, query, args...)
}

func (e executor) QueryRowContext(_ context.Context, query string, args ...any) *sql.Row {
	query, args = translate(query, args)
	return e.db.QueryRowContext(e.ctx, query, args...)
}

// translate turns $n outside quotes into bun's ?, with the arguments in that order,
// and a ? of the query into bun's \?. A number without an argument stays as it is.
func translate(query string, args []any) (string, []any) {
	var out strings.Builder
	var ordered []any
	quote := byte(0)
	for i := 0; i < len(query); i++ {
		c := query[i]
		switch {
		case c == '?':
			out.WriteString(`\?`)
			continue
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c == '$':
			end := i + 1
			for end < len(query) && query[end] >= '0' && query[end] <= '9' {
				end++
			}
			if n, err := strconv.Atoi(query[i+1 : end]); err == nil && n >= 1 && n <= len(args) {
				out.WriteByte('?')
				ordered = append(ordered, args[n-1])
				i = end - 1
				continue
			}
		}
		out.WriteByte(c)
	}
	return out.String(), ordered
}
