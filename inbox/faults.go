package inbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
)

// Faults are told apart by code, never by text.
// PostgreSQL: https://www.postgresql.org/docs/current/errcodes-appendix.html
// SQLite: https://www.sqlite.org/rescode.html
const (
	codeSerialization = "40001"
	codeDeadlock      = "40P01"
	codeLockTimeout   = "55P03"
	codeReadOnly      = "25006"
	codeNoTransaction = "25P01"
	codeNoSavepoint   = "3B001"

	sqliteError      = 1
	sqliteBusy       = 5
	sqliteLocked     = 6
	sqliteConstraint = 19
)

// sqlState returns the SQLSTATE of a PostgreSQL error, or "".
// pgx has SQLState, bun's pgdriver has Field.
func sqlState(err error) string {
	var pgx interface{ SQLState() string }
	if errors.As(err, &pgx) {
		return pgx.SQLState()
	}
	var bun interface{ Field(byte) string }
	if errors.As(err, &bun) {
		return bun.Field('C')
	}
	return ""
}

// sqliteCode returns the primary result code of a SQLite error, or 0.
func sqliteCode(err error) int {
	var coded interface{ Code() int }
	if errors.As(err, &coded) {
		return coded.Code() & 0xff
	}
	return 0
}

// retryCode names the reason why the database wants the whole transaction
// again, or is "".
func (d dialectName) retryCode(err error) string {
	if d == sqliteDialect {
		switch sqliteCode(err) {
		case sqliteBusy, sqliteLocked:
			return "SQLITE_BUSY"
		}
		return ""
	}
	switch code := sqlState(err); code {
	case codeSerialization, codeDeadlock, codeLockTimeout:
		return code
	}
	return ""
}

// connectionLost reports that err means the end of the connection or of the
// server's readiness, not a fault of the statement. It is meant for errors of
// statements that we sent ourselves: a handler's net.Error proves nothing.
func connectionLost(err error) bool {
	if err == nil {
		return false
	}
	switch code := sqlState(err); {
	case code == codeReadOnly,
		strings.HasPrefix(code, "08"),  // connection exceptions
		strings.HasPrefix(code, "57P"), // shutdown, crash, cannot connect now
		strings.HasPrefix(code, "53"):  // too many connections, out of memory, disk full
		return true
	case code != "":
		return false
	}
	var network net.Error
	return errors.Is(err, driver.ErrBadConn) ||
		errors.Is(err, sql.ErrConnDone) ||
		errors.Is(err, sql.ErrTxDone) ||
		errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, context.DeadlineExceeded) ||
		errors.As(err, &network)
}

// handlerInterrupted reports that the error a handler returned is the
// database's wish for another run, not the handler's failure. Only codes count.
func (d dialectName) handlerInterrupted(err error) bool {
	if d == sqliteDialect {
		// A handler's transaction has the write lock: whatever is busy for it
		// is another connection that it should not have asked.
		return false
	}
	if d.retryCode(err) != "" {
		return true
	}
	code := sqlState(err)
	return code == codeReadOnly || strings.HasPrefix(code, "08") || strings.HasPrefix(code, "57P")
}
