package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"
)

type dialectName string

const (
	postgresDialect dialectName = "postgres"
	sqliteDialect   dialectName = "sqlite"
)

// store is what the inbox asks of a database. Each method is one statement on
// PostgreSQL, and a few in the same transaction on SQLite.
type store interface {
	// add stores rows, which are distinct from those that existing finds under
	// former names, and returns their ids: 0 for one that was there already.
	// bounded waits for locks only briefly; it is for a statement that several
	// calls share.
	add(ctx context.Context, q querier, rows []row, bounded bool) (ids []int64, err error)
	// existing looks identities up and returns the fingerprints of those it finds.
	existing(ctx context.Context, q querier, identities []Identity) (map[Identity][]byte, error)
	// receive stores a receipt as processed; false when the identity is there.
	receive(ctx context.Context, q querier, receipt row) (fresh bool, err error)
	// stamp renews the time and the metadata of a receipt, or returns errNotClaimed.
	stamp(ctx context.Context, q querier, receipt row) error
	// claim locks at most limit due rows of the names that are not paused, each
	// behind its mark and of none of the ordering keys in without.
	claim(ctx context.Context, q querier, marks []mark, without []string, limit int) ([]*Claimed, error)
	// claimOne locks one row that is due, or was started as often as starts
	// says; nil when it is gone, not due, or locked.
	claimOne(ctx context.Context, q querier, id int64, starts int) (*Claimed, error)
	// earliest finds the first unfinished message of each key that is not among ids.
	earliest(ctx context.Context, q querier, keys []string, ids []int64) (map[string]int64, error)
	// park takes due messages of a key out of the claim, from an id on, where an
	// earlier one is unfinished, and returns their ids. In a transaction of its own.
	park(ctx context.Context, q querier, from map[string]int64) ([]int64, error)
	// unpark makes the next messages of each key claimable, at most limit per
	// key. It comes after the earlier ones have left, in the same transaction.
	unpark(ctx context.Context, q querier, keys []string, limit int) (unparked, error)
	// processed settles all of them or returns errNotClaimed.
	processed(ctx context.Context, q querier, claimed []*Claimed) error
	// failed records further tries and deaths, all of them or returns errNotClaimed.
	// processor goes into the history of attempts.
	failed(ctx context.Context, q querier, processor string, failures []failure) error
	// anyDue is a cheap look without locks; true where it would cost more than a claim.
	anyDue(ctx context.Context, names []string) (bool, error)
	// messages counts all messages, or estimates them where counting would hurt.
	messages(ctx context.Context, q querier) (n int64, estimated bool, err error)
	// backlog counts pending messages of the names, at most limit, and finds the oldest due one.
	backlog(ctx context.Context, names []string, limit int64) (Backlog, error)
	// status looks a message up under any of the names; ErrNotFound.
	status(ctx context.Context, identity Identity, names []string) (Status, error)
	// version returns the schema version, 0 when the tables are missing.
	version(ctx context.Context, q querier) (int, error)
	// migrateLock serialises migrations until the transaction ends.
	migrateLock(ctx context.Context, q querier, timeout time.Duration) error
	// check warns of settings that void a guarantee, or returns an error.
	check(ctx context.Context) error
}

// failure is the fate of a message that was not processed.
type failure struct {
	*Claimed
	attempts      int // what to record
	interruptions int
	dead          bool
	leaves        bool // dead, and not in the way of its ordering key
	delay         time.Duration
	duration      time.Duration // of the handler run
	err           string        // "" leaves the last error as it is
	fresh         bool          // recorded outside the transaction that claimed
}

// historyLength is how many failed attempts of a message are remembered.
const historyLength = 10

// errNotClaimed says that a compare-and-set found the rows changed, or the
// transaction not the one that claimed them.
var errNotClaimed = errors.New("inbox: the messages are not claimed by this transaction any more")

// database is what both stores share.
type database struct {
	db      *bun.DB
	config  *Config
	dialect dialectName
	tables  *strings.Replacer
	turn    chan struct{} // SQLite: held by the writing transaction
	texts   sync.Map      // template -> SQL with table names filled in

	prepared *prepared // SQLite
}

func newDatabase(db *bun.DB, config *Config) (*database, error) {
	d := &database{db: db, config: config, turn: make(chan struct{}, 1), prepared: newPrepared(db.DB)}
	runtime.AddCleanup(d, (*prepared).close, d.prepared)
	switch name := db.Dialect().Name(); name {
	case dialect.PG:
		d.dialect = postgresDialect
	case dialect.SQLite:
		d.dialect = sqliteDialect
		if config.Schema != "" {
			return nil, errors.New("inbox: config: Schema: SQLite has no schemas")
		}
	default:
		return nil, fmt.Errorf("inbox: %s is not supported: use PostgreSQL or SQLite", name)
	}
	messages, sequence := d.table("messages"), d.table("messages_id_seq")
	pairs := []string{
		"{messages}", messages,
		"{messages_text}", quoteText(messages),
		"{queue}", d.table("queue"),
		"{queue_text}", quoteText(d.table("queue")),
		"{schema}", d.table("schema"),
		"{attempts}", d.table("attempts"),
		"{processors}", d.table("processors"),
		"{pauses}", d.table("pauses"),
		"{minutes}", d.table("minutes"),
		"{migrating}", d.table("migrating"),
		"{sequence}", quoteText(sequence),
		"{history}", strconv.Itoa(historyLength),
		// The same table has the same locks, whatever way it is configured.
		"{key_lock}", "'" + quoteText(d.table("queue")) + "'::regclass::oid::bigint",
		"{park_lock}", "-('" + quoteText(d.table("queue")) + "'::regclass::oid::bigint)",
	}
	if d.dialect == postgresDialect && config.Clock == nil {
		pairs = append(pairs, "{now}", "statement_timestamp()", "{clock}", "clock_timestamp()")
	}
	d.tables = strings.NewReplacer(pairs...)
	return d, nil
}

// table returns the quoted, qualified name of one of our tables.
func (d *database) table(suffix string) string {
	name := quoteIdent(d.config.Prefix + "_" + suffix)
	if d.config.Schema != "" {
		name = quoteIdent(d.config.Schema) + "." + name
	}
	return name
}

func quoteIdent(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// quoteText escapes for a place between single quotes.
func quoteText(text string) string { return strings.ReplaceAll(text, "'", "''") }

// text fills table names, and a test's clock, into a template.
func (d *database) text(template string) string {
	text, ok := d.texts.Load(template)
	if !ok {
		text = d.tables.Replace(template)
		d.texts.Store(template, text)
	}
	if d.config.Clock == nil || d.dialect != postgresDialect {
		return text.(string)
	}
	now := "'" + d.config.Clock().UTC().Format(postgresTime) + "'::timestamptz"
	return strings.NewReplacer("{now}", now, "{clock}", now).Replace(text.(string))
}

const postgresTime = "2006-01-02 15:04:05.999999-07:00"

// scan runs a query through bun, so that its hooks see it.
func (d *database) scan(ctx context.Context, q querier, dest any, query string, args ...any) error {
	return d.db.NewRaw(query, args...).Conn(q).Scan(ctx, dest)
}

func (d *database) exec(ctx context.Context, q querier, query string, args ...any) (sql.Result, error) {
	return d.db.NewRaw(query, args...).Conn(q).Exec(ctx)
}

// execCount runs a statement that has to change exactly want rows.
func (d *database) execCount(ctx context.Context, q querier, want int, query string, args ...any) error {
	result, err := d.exec(ctx, q, query, args...)
	return counted(result, err, want)
}

// counted is nil for a statement that has changed exactly want rows.
func counted(result sql.Result, err error, want int) error {
	if err != nil {
		return err
	}
	n, err := result.RowsAffected()
	if err != nil {
		return err
	}
	if n != int64(want) {
		return errNotClaimed
	}
	return nil
}

// inserted reports whether an insert stored its row.
func inserted(result sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n == 1, err
}

// wrap turns a database error into what Add and Accept return.
func (d *database) wrap(operation string, err error) error {
	if err == nil {
		return nil
	}
	if code := d.dialect.retryCode(err); code != "" {
		return &RetryableError{Code: code, Err: err}
	}
	return fmt.Errorf("inbox: %s: %w", operation, err)
}
