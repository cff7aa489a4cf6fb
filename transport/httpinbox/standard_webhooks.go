package httpinbox

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	webhookTolerance = 5 * time.Minute
	// maxSignatures bounds the work that one unsigned request can cause.
	maxSignatures = 16
)

// StandardWebhooksConfig holds the settings of StandardWebhooks.
type StandardWebhooksConfig struct {
	// Secrets verify the signatures: "whsec_..." (HMAC-SHA256, signatures v1)
	// and "whpk_..." (ed25519 public key, signatures v1a). During a rotation
	// give the old and the new one; one match is enough. Required.
	Secrets []string
	// Tolerance is how far the timestamp may be from now, either way. Default 5 min.
	Tolerance time.Duration
	// Prefix begins the names of the header fields: webhook-id,
	// webhook-timestamp, webhook-signature. Default "webhook"; some senders
	// still say "svix".
	Prefix string
	// Clock replaces time.Now, for tests.
	Clock func() time.Time
}

// StandardWebhooks takes the message id from webhook-id, after it has verified
// the signature over id, timestamp and the bytes of the body as received. What
// cannot be verified is answered 401, whatever the reason: a field is missing or
// repeated, the timestamp is out of tolerance, no signature matches. A verified
// repeat with another body is accepted and reported: the sender would not stop.
//
// The id must not hold a full stop, as the specification advises: it separates
// the parts of what is signed.
//
// https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
func StandardWebhooks(config StandardWebhooksConfig) (Identifier, error) {
	if config.Tolerance == 0 {
		config.Tolerance = webhookTolerance
	}
	if config.Prefix == "" {
		config.Prefix = "webhook"
	}
	if config.Clock == nil {
		config.Clock = time.Now
	}
	w := &standardWebhooks{tolerance: config.Tolerance, clock: config.Clock}
	w.id, w.timestamp, w.signature = config.Prefix+"-id", config.Prefix+"-timestamp", config.Prefix+"-signature"
	var problems []error
	report := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("httpinbox: standard webhooks config: "+format, args...))
	}
	if config.Tolerance < 0 {
		report("Tolerance: negative")
	}
	if len(config.Secrets) == 0 {
		report("Secrets is required")
	}
	for i, secret := range config.Secrets {
		if err := w.addSecret(secret); err != nil {
			report("Secrets[%d]: %v", i, err)
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return w, nil
}

type standardWebhooks struct {
	id, timestamp, signature string // names of the fields

	secrets   [][]byte
	keys      []ed25519.PublicKey
	tolerance time.Duration
	clock     func() time.Time
}

// addSecret never shows the secret in its error.
func (w *standardWebhooks) addSecret(text string) error {
	encoded, symmetric := strings.CutPrefix(text, "whsec_")
	encoded, public := strings.CutPrefix(encoded, "whpk_")
	if symmetric == public {
		return errors.New("neither whsec_ nor whpk_")
	}
	raw, err := base64.StdEncoding.DecodeString(encoded)
	switch {
	case err != nil:
		return errors.New("not base64")
	case symmetric && (len(raw) < 24 || len(raw) > 64):
		return fmt.Errorf("a secret of %d bytes; the specification wants 24 to 64", len(raw))
	case public && len(raw) != ed25519.PublicKeySize:
		return fmt.Errorf("a public key of %d bytes, not %d", len(raw), ed25519.PublicKeySize)
	case symmetric:
		w.secrets = append(w.secrets, raw)
	default:
		w.keys = append(w.keys, raw)
	}
	return nil
}

// signed is what the header says, before anything is verified.
type signed struct{ id, timestamp, signatures string }

func (w *standardWebhooks) preflight(r *http.Request) error {
	_, err := w.header(r)
	return err
}

func (w *standardWebhooks) header(r *http.Request) (signed, error) {
	var s signed
	for _, field := range []struct {
		name string
		to   *string
	}{{w.id, &s.id}, {w.timestamp, &s.timestamp}, {w.signature, &s.signatures}} {
		value, err := single(r, field.name)
		if err != nil {
			return signed{}, w.unauthorized("%v", err)
		}
		if value == "" {
			return signed{}, w.unauthorized("the header field %s is missing", field.name)
		}
		*field.to = value
	}
	if strings.Contains(s.id, ".") {
		return signed{}, w.unauthorized("%s holds a full stop", w.id)
	}
	at, err := parseTimestamp(s.timestamp)
	if err != nil {
		return signed{}, w.unauthorized("%s: %v", w.timestamp, err)
	}
	if off := w.clock().Sub(at); off > w.tolerance || off < -w.tolerance {
		return signed{}, w.unauthorized("%s is more than %v from now", w.timestamp, w.tolerance)
	}
	return s, nil
}

// parseTimestamp reads seconds since 1970: digits only, so that no two texts
// mean the same time.
func parseTimestamp(text string) (time.Time, error) {
	const digits = 12 // up to the year 33658: no overflow anywhere
	if len(text) > digits || strings.Trim(text, "0123456789") != "" || len(text) > 1 && text[0] == '0' {
		return time.Time{}, errors.New("not a number of seconds")
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, errors.New("not a number of seconds")
	}
	return time.Unix(seconds, 0), nil
}

// Identify verifies before it believes anything.
func (w *standardWebhooks) Identify(r *http.Request, body []byte) (Identified, error) {
	s, err := w.header(r)
	if err != nil {
		return Identified{}, err
	}
	if !w.verify(s, body) {
		return Identified{}, w.unauthorized("no signature in %s matches", w.signature)
	}
	return Identified{MessageID: s.id}, nil
}

// verify reports that one of the signatures is by one of the secrets.
func (w *standardWebhooks) verify(s signed, body []byte) bool {
	content := make([]byte, 0, len(s.id)+len(s.timestamp)+len(body)+2)
	content = append(content, s.id...)
	content = append(content, '.')
	content = append(content, s.timestamp...)
	content = append(content, '.')
	content = append(content, body...)
	expected := make([][]byte, len(w.secrets))
	for i, secret := range w.secrets {
		mac := hmac.New(sha256.New, secret)
		mac.Write(content)
		expected[i] = mac.Sum(nil)
	}
	list := strings.Fields(s.signatures)
	if len(list) > maxSignatures {
		return false
	}
	for _, text := range list {
		version, encoded, _ := strings.Cut(text, ",")
		// Strict: without it the unused bits of the last letter would be free.
		signature, err := base64.StdEncoding.Strict().DecodeString(encoded)
		if err != nil {
			continue
		}
		switch version {
		case "v1":
			for _, mac := range expected {
				if hmac.Equal(signature, mac) {
					return true
				}
			}
		case "v1a":
			for _, key := range w.keys {
				if ed25519.Verify(key, content, signature) {
					return true
				}
			}
		}
	}
	return false
}

func (w *standardWebhooks) unauthorized(format string, args ...any) error {
	// RFC 9110 wants a challenge with every 401.
	return problem(http.StatusUnauthorized, codeSignature, format, args...).with("WWW-Authenticate", "Standard-Webhooks")
}
