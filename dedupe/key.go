package dedupe

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxKeyBytes bounds scope and id, so that both fit an index entry of every
// database and never have to be cut.
const maxKeyBytes = 256

// Key is what a guard remembers: an id that is unique within a scope. The two
// are compared byte for byte and never joined into one string.
type Key struct {
	Scope string // "mails", a consumer's name, ...; may be empty
	ID    string
}

// KeyError is returned by Do for a key that no store could keep as it is. It is
// permanent: fn did not run, and the same key will never be accepted.
type KeyError struct {
	Field string // "scope" or "key"
	Err   error
}

// Error says what is wrong. It never shows the value.
func (e *KeyError) Error() string { return fmt.Sprintf("dedupe: %s: %v", e.Field, e.Err) }

// Unwrap returns the reason.
func (e *KeyError) Unwrap() error { return e.Err }

// check returns a *KeyError for a bad key.
func (k Key) check() error {
	if err := checkText(k.Scope); err != nil {
		return &KeyError{"scope", err}
	}
	if k.ID == "" {
		return &KeyError{"key", errors.New("empty")}
	}
	if err := checkText(k.ID); err != nil {
		return &KeyError{"key", err}
	}
	return nil
}

// clone keeps a key from pinning the message that it was cut out of.
func (k Key) clone() Key { return Key{strings.Clone(k.Scope), strings.Clone(k.ID)} }

// checkText refuses what a text column or a log line could change on the way.
func checkText(s string) error {
	if len(s) > maxKeyBytes {
		return fmt.Errorf("%d bytes, at most %d", len(s), maxKeyBytes)
	}
	if !utf8.ValidString(s) {
		return errors.New("invalid UTF-8")
	}
	for _, c := range s {
		if c < 0x20 || c >= 0x7f && c <= 0x9f { // C0, DEL and C1
			return fmt.Errorf("control character %U", c)
		}
	}
	return nil
}
