package httpinbox

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

const idempotencyKeyField = "Idempotency-Key"

// IdempotencyKey takes the message id from the header field Idempotency-Key:
// a quoted string as RFC 8941 defines it, or the same text without quotes, as
// most clients send it. "k-1" and k-1 are one key. A request without the field
// is answered 400, the same key with another body 422.
//
// Keys are unique per client: give Config.SourceFunc, or two clients that count
// from one are taken for one.
//
// https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/
func IdempotencyKey() Identifier { return idempotencyKey{} }

type idempotencyKey struct{}

func (idempotencyKey) refusesMismatch() {}

func (k idempotencyKey) preflight(r *http.Request) error {
	_, err := k.Identify(r, nil)
	return err
}

// Identify reads the header only.
func (idempotencyKey) Identify(r *http.Request, _ []byte) (Identified, error) {
	value, err := single(r, idempotencyKeyField)
	if err != nil {
		return Identified{}, problem(http.StatusBadRequest, codeID, "%v", err)
	}
	if value == "" {
		return Identified{}, problem(http.StatusBadRequest, codeIDMissing, "this request needs the header field %s", idempotencyKeyField)
	}
	key, err := parseIdempotencyKey(value)
	if err != nil {
		return Identified{}, problem(http.StatusBadRequest, codeID, "%s: %v", idempotencyKeyField, err)
	}
	return Identified{MessageID: key}, nil
}

// parseIdempotencyKey reads an RFC 8941 item whose value is a string, or a bare
// key: visible ASCII without what would end or quote it there. Parameters of
// the item are checked and ignored, as the RFC wants it.
func parseIdempotencyKey(value string) (string, error) {
	value = strings.Trim(value, " ")
	if !strings.HasPrefix(value, `"`) {
		for i := range len(value) {
			if c := value[i]; c <= 0x20 || c >= 0x7f || strings.IndexByte(`",;\`, c) >= 0 {
				return "", fmt.Errorf("byte %d must be quoted, or is not allowed", i)
			}
		}
		if value == "" {
			return "", errors.New("empty")
		}
		return value, nil
	}
	key, rest, err := parseString(value)
	if err != nil {
		return "", err
	}
	if key == "" {
		return "", errors.New("empty")
	}
	return key, checkParameters(rest)
}

// parseString reads a quoted string from the start of s.
// https://www.rfc-editor.org/rfc/rfc8941#section-4.2.5
func parseString(s string) (value, rest string, err error) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return b.String(), s[i+1:], nil
		case c == '\\':
			i++
			if i == len(s) || s[i] != '"' && s[i] != '\\' {
				return "", "", errors.New(`a backslash that is not before " or \`)
			}
			b.WriteByte(s[i])
		case c < 0x20 || c >= 0x7f:
			return "", "", fmt.Errorf("byte %d is not printable ASCII", i)
		default:
			b.WriteByte(c)
		}
	}
	return "", "", errors.New("the closing quote is missing")
}

// checkParameters reads *( ";" *SP key [ "=" value ] ) up to the end.
// https://www.rfc-editor.org/rfc/rfc8941#section-4.2.3.2
func checkParameters(s string) error {
	const keyFirst, keyRest = "*abcdefghijklmnopqrstuvwxyz", "*abcdefghijklmnopqrstuvwxyz0123456789_-."
	bad := errors.New("something other than parameters after the closing quote")
	for s != "" {
		if s[0] != ';' {
			return bad
		}
		s = strings.TrimLeft(s[1:], " ")
		if s == "" || strings.IndexByte(keyFirst, s[0]) < 0 {
			return bad
		}
		s = strings.TrimLeft(s, keyRest)
		if !strings.HasPrefix(s, "=") {
			continue
		}
		var err error
		if s, err = skipBareItem(s[1:]); err != nil {
			return err
		}
	}
	return nil
}

// skipBareItem steps over the value of a parameter: it is ignored, so a token
// stands for every kind that is not quoted.
func skipBareItem(s string) (rest string, err error) {
	if strings.HasPrefix(s, `"`) {
		_, rest, err = parseString(s)
		return rest, err
	}
	n := 0
	for n < len(s) && s[n] > 0x20 && s[n] < 0x7f && strings.IndexByte(`;,"\`, s[n]) < 0 {
		n++
	}
	if n == 0 {
		return "", errors.New("a parameter without a value after =")
	}
	return s[n:], nil
}
