package wminbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"
)

const (
	maxDetail = 2000 // bytes of text about a reject
	maxPrefix = 63 - len("_rejects_digest")

	// redelivered is what Watermill's AMQP subscriber adds to a second delivery.
	redelivered = "_watermill_amqp_redelivered"
)

// Migrations holds the plain SQL files of the rejects table, for goose and other
// tools, with the default names.
//
//go:embed migrations
var Migrations embed.FS

// ParkConfig holds the settings of a Park. The zero value is ready to use.
type ParkConfig struct {
	// Schema is the PostgreSQL schema of the table. Empty: the search path.
	Schema string
	// Prefix begins the name of the table: inbox_rejects. Default "inbox".
	Prefix string
}

// Park is the policy to keep rejected messages in a table of the inbox's database:
// reason, topic, payload and metadata. The payload is kept byte for byte. A
// redelivery of a parked message (same topic, UUID, metadata and bytes) only counts
// up its row, so that a lost ack does not fill the table.
type Park struct {
	db     *bun.DB
	config ParkConfig
	table  string
}

// NewPark returns a Park on db, which is PostgreSQL or SQLite. It sends no SQL;
// call Migrate, or apply the files in Migrations, before first use.
func NewPark(db *bun.DB, config ParkConfig) (*Park, error) {
	if db == nil {
		return nil, errors.New("wminbox: NewPark needs a database")
	}
	config.Prefix = cmp.Or(config.Prefix, "inbox")
	for _, name := range []string{config.Schema, config.Prefix} {
		if len(name) > maxPrefix || !utf8.ValidString(name) || strings.ContainsAny(name, `"?\`) || strings.ContainsFunc(name, unicode.IsControl) {
			return nil, fmt.Errorf("wminbox: park: the schema or prefix %q cannot be used in a table name", name)
		}
	}
	switch db.Dialect().Name() {
	case dialect.PG:
	case dialect.SQLite:
		if config.Schema != "" {
			return nil, errors.New("wminbox: park: SQLite has no schemas")
		}
	default:
		return nil, fmt.Errorf("wminbox: park: %s is not supported: use PostgreSQL or SQLite", db.Dialect().Name())
	}
	p := &Park{db: db, config: config, table: `"` + config.Prefix + `_rejects"`}
	if config.Schema != "" {
		p.table = `"` + config.Schema + `".` + p.table
	}
	return p, nil
}

// Migrate creates the table when it is missing. It is safe when many processes
// start at once, and sends no DDL when the table is there.
func (p *Park) Migrate(ctx context.Context) error {
	lock, file := parkPostgresLock, "migrations/postgres/0001_rejects.sql"
	if !p.postgres() {
		lock, file = "", "migrations/sqlite/0001_rejects.sql"
	}
	text, err := Migrations.ReadFile(file)
	if err != nil {
		return err
	}
	if there, err := p.exists(ctx, p.db); there || err != nil {
		return err
	}
	// Each statement has to see what was committed while it waited for the lock.
	options := &sql.TxOptions{}
	if p.postgres() {
		options.Isolation = sql.LevelReadCommitted
	}
	err = p.db.RunInTx(ctx, options, func(ctx context.Context, tx bun.Tx) error {
		if lock != "" {
			if _, err := tx.NewRaw(lock, p.table).Exec(ctx); err != nil {
				return err
			}
		}
		if there, err := p.exists(ctx, tx); there || err != nil {
			return err
		}
		for statement := range strings.SplitSeq(p.rename(string(text)), ";") {
			if strings.TrimSpace(statement) == "" {
				continue
			}
			if _, err := tx.NewRaw(statement).Exec(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("wminbox: migrate the rejects table: %w", err)
	}
	return nil
}

// Reject stores the message and commits.
func (p *Park) Reject(ctx context.Context, msg *message.Message, reason *RejectError) error {
	return p.RejectTx(ctx, p.db.DB, msg, reason)
}

// RejectTx stores the message in the caller's transaction.
func (p *Park) RejectTx(ctx context.Context, tx bun.IConn, msg *message.Message, reason *RejectError) error {
	topic := message.SubscribeTopicFromCtx(msg.Context())
	metadata, err := json.Marshal(msg.Metadata)
	if err != nil {
		return err
	}
	query := parkSQLite
	if p.postgres() {
		query = parkPostgres
	}
	_, err = p.db.NewRaw(strings.ReplaceAll(query, "{rejects}", p.table),
		digest(topic, msg), clean(topic, maxDetail), clean(message.HandlerNameFromCtx(msg.Context()), maxDetail),
		string(reason.Reason), clean(reason.detail(), maxDetail),
		[]byte(msg.UUID), nonNil(msg.Payload), metadata,
	).Conn(tx).Exec(ctx)
	if err != nil {
		return fmt.Errorf("park: %w", err)
	}
	return nil
}

func (p *Park) postgres() bool { return p.db.Dialect().Name() == dialect.PG }

func (p *Park) exists(ctx context.Context, db bun.IDB) (there bool, err error) {
	if p.postgres() {
		err = db.NewRaw(parkPostgresExists, p.table).Scan(ctx, &there)
	} else {
		err = db.NewRaw(`SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?)`, p.config.Prefix+"_rejects").Scan(ctx, &there)
	}
	if err != nil {
		return false, fmt.Errorf("wminbox: look for the rejects table: %w", err)
	}
	return there, nil
}

// rename fills the configured names into a migration, without its comments.
func (p *Park) rename(text string) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		code, _, _ := strings.Cut(line, "--")
		kept.WriteString(strings.TrimRight(code, "\n") + "\n")
	}
	return strings.NewReplacer(
		`TABLE "inbox_rejects"`, "TABLE "+p.table,
		`"inbox_rejects`, `"`+p.config.Prefix+`_rejects`,
	).Replace(kept.String())
}

// digest stands for everything that a redelivery repeats.
func digest(topic string, msg *message.Message) []byte {
	hash := sha256.New()
	field := func(value string) {
		_ = binary.Write(hash, binary.BigEndian, uint64(len(value)))
		_, _ = io.WriteString(hash, value)
	}
	field(topic)
	field(msg.UUID)
	field(string(msg.Payload))
	for _, key := range slices.Sorted(maps.Keys(msg.Metadata)) {
		if key != redelivered {
			field(key)
			field(msg.Metadata[key])
		}
	}
	return hash.Sum(nil)
}

func nonNil(payload []byte) []byte {
	if payload == nil {
		return []byte{}
	}
	return payload
}

// clean makes text storable anywhere: valid, without control characters, cut.
func clean(text string, limit int) string {
	text = strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(text, "\uFFFD"))
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "")
	}
	return text
}
