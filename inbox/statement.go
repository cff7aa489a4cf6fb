package inbox

import (
	"fmt"
	"strings"
)

// ownSavepoint begins the names of our savepoints. A handler must not touch them.
const ownSavepoint = "letterbox_"

// checkStatement refuses SQL text that would begin or end the transaction, or
// touch one of our savepoints. The text may hold several statements.
// rollback reports a ROLLBACK TO SAVEPOINT, which revives an aborted transaction.
func checkStatement(dialect dialectName, text string) (rollback bool, err error) {
	s := scanner{text: text, postgres: dialect == postgresDialect}
	for s.nextStatement() {
		first := s.word()
		switch first {
		case "BEGIN", "START", "COMMIT", "END", "ABORT":
			return false, &refusedError{first}
		case "PREPARE":
			if s.word() == "TRANSACTION" {
				return false, &refusedError{"PREPARE TRANSACTION"}
			}
		case "ROLLBACK":
			next := s.word()
			if next == "WORK" || next == "TRANSACTION" {
				next = s.word()
			}
			if next != "TO" {
				return false, &refusedError{first}
			}
			if s.savepoint() {
				return false, &refusedError{"ROLLBACK TO " + ownSavepoint}
			}
			rollback = true
		case "RELEASE", "SAVEPOINT":
			if s.savepoint() {
				return false, &refusedError{first + " " + ownSavepoint}
			}
		}
	}
	return rollback, nil
}

// refusedError is what a handler gets for such a statement.
type refusedError struct{ statement string }

func (e *refusedError) Error() string {
	return fmt.Sprintf("inbox: %s is refused: the transaction belongs to the inbox; use RunInTx for a nested one", e.statement)
}

// scanner finds the beginnings of statements: it steps over white space,
// comments, quoted names and strings as PostgreSQL and SQLite write them.
// https://www.postgresql.org/docs/current/sql-syntax-lexical.html
type scanner struct {
	text     string
	started  bool
	postgres bool // comments nest, E'' has escapes, $$ quotes; on SQLite ` and [ do
}

// nextStatement moves behind the next semicolon that separates statements.
func (s *scanner) nextStatement() bool {
	if !s.started {
		s.started = true
		return true
	}
	for s.text != "" {
		if s.text[0] == ';' {
			s.text = s.text[1:]
			return true
		}
		s.skipToken()
	}
	return false
}

// word returns the next keyword or name in upper case, or "".
func (s *scanner) word() string {
	s.skipSpace()
	n := 0
	for n < len(s.text) && isWordByte(s.text[n]) {
		n++
	}
	word := s.text[:n]
	s.text = s.text[n:]
	return strings.ToUpper(word)
}

// savepoint reports that the name which follows is one of ours.
func (s *scanner) savepoint() bool {
	s.skipSpace()
	name := s.word()
	if name == "SAVEPOINT" {
		s.skipSpace()
		name = s.word()
	}
	if name == "" {
		name = strings.ToUpper(strings.TrimLeft(s.text, "\"`['"))
	}
	return strings.HasPrefix(name, strings.ToUpper(ownSavepoint))
}

// skipSpace steps over white space and comments.
func (s *scanner) skipSpace() {
	for s.text != "" {
		switch {
		case strings.IndexByte(" \t\r\n\f\v", s.text[0]) >= 0:
			s.text = s.text[1:]
		case strings.HasPrefix(s.text, "\ufeff"): // SQLite steps over it
			s.text = s.text[len("\ufeff"):]
		case strings.HasPrefix(s.text, "--"):
			s.skipLine()
		case strings.HasPrefix(s.text, "/*"):
			s.skipComment()
		default:
			return
		}
	}
}

func (s *scanner) skipLine() {
	ends := "\n"
	if s.postgres {
		ends = "\r\n"
	}
	if end := strings.IndexAny(s.text, ends); end >= 0 {
		s.text = s.text[end:]
	} else {
		s.text = ""
	}
}

// skipComment ends a comment at its first */, on PostgreSQL at the matching one.
func (s *scanner) skipComment() {
	depth := 0
	for i := 0; i+1 < len(s.text); i++ {
		switch s.text[i : i+2] {
		case "/*":
			if depth > 0 && !s.postgres {
				continue
			}
			depth++
			i++
		case "*/":
			depth--
			i++
			if depth == 0 {
				s.text = s.text[i+1:]
				return
			}
		}
	}
	s.text = ""
}

// skipToken steps over one token, so that no semicolon inside is seen.
func (s *scanner) skipToken() {
	switch c := s.text[0]; {
	case strings.HasPrefix(s.text, "--"), strings.HasPrefix(s.text, "/*"):
		s.skipSpace()
	case s.postgres && (c == 'e' || c == 'E') && len(s.text) > 1 && s.text[1] == '\'':
		s.text = s.text[1:]
		s.skipQuoted('\'', true)
		for s.continued() { // by another part on the next line
			s.skipQuoted('\'', true)
		}
	case c == '\'', c == '"', c == '`' && !s.postgres:
		s.skipQuoted(c, false)
	case c == '[' && !s.postgres:
		_, s.text, _ = strings.Cut(s.text, "]")
	case c == '$' && s.postgres:
		s.skipDollar()
	case isWordByte(c):
		for s.text != "" && (isWordByte(s.text[0]) || s.text[0] == '$') {
			s.text = s.text[1:]
		}
	default:
		s.text = s.text[1:]
	}
}

// skipQuoted steps over a quoted string or name; a doubled quote stays inside.
func (s *scanner) skipQuoted(quote byte, backslash bool) {
	for i := 1; i < len(s.text); i++ {
		switch {
		case backslash && s.text[i] == '\\':
			i++
		case s.text[i] == quote:
			if i+1 < len(s.text) && s.text[i+1] == quote {
				i++
				continue
			}
			s.text = s.text[i+1:]
			return
		}
	}
	s.text = ""
}

// continued steps over white space with a line break in front of a quote, which
// continues the string before it.
func (s *scanner) continued() bool {
	rest := *s
	rest.skipSpace()
	if !strings.HasPrefix(rest.text, "'") || !strings.ContainsAny(s.text[:len(s.text)-len(rest.text)], "\r\n") {
		return false
	}
	s.text = rest.text
	return true
}

// skipDollar steps over a dollar-quoted string, or over the sign alone.
func (s *scanner) skipDollar() {
	n := 1
	for n < len(s.text) && isWordByte(s.text[n]) {
		n++
	}
	if n == len(s.text) || s.text[n] != '$' || n > 1 && s.text[1] >= '0' && s.text[1] <= '9' {
		s.text = s.text[1:]
		return
	}
	tag := s.text[:n+1]
	if end := strings.Index(s.text[n+1:], tag); end >= 0 {
		s.text = s.text[n+1+end+len(tag):]
	} else {
		s.text = ""
	}
}

func isWordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c >= 0x80
}
