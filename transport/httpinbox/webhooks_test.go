package httpinbox_test

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/transport/httpinbox"
)

var (
	webhookNow = time.Unix(1_700_000_000, 0)
	secretA    = []byte("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")
	secretB    = []byte("bbbbbbbbbbbbbbbbbbbbbbbb")
	privateKey = ed25519.NewKeyFromSeed([]byte("cccccccccccccccccccccccccccccccc"))
	otherKey   = ed25519.NewKeyFromSeed([]byte("dddddddddddddddddddddddddddddddd"))
)

func whsec(secret []byte) string { return "whsec_" + base64.StdEncoding.EncodeToString(secret) }
func whpk(key ed25519.PrivateKey) string {
	return "whpk_" + base64.StdEncoding.EncodeToString(key.Public().(ed25519.PublicKey))
}

// v1 and v1a sign as the specification says, written down a second time.
func v1(secret []byte, id, timestamp, body string) string {
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "%s.%s.%s", id, timestamp, body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

func v1a(key ed25519.PrivateKey, id, timestamp, body string) string {
	return "v1a," + base64.StdEncoding.EncodeToString(ed25519.Sign(key, []byte(id+"."+timestamp+"."+body)))
}

func webhooks(t testing.TB, secrets ...string) httpinbox.Identifier {
	t.Helper()
	identifier, err := httpinbox.StandardWebhooks(httpinbox.StandardWebhooksConfig{Secrets: secrets, Clock: func() time.Time { return webhookNow }})
	if err != nil {
		t.Fatal(err)
	}
	return identifier
}

func TestStandardWebhooks(t *testing.T) {
	t.Parallel()
	at := func(offset time.Duration) string { return fmt.Sprint(webhookNow.Add(offset).Unix()) }
	now := at(0)
	sign := v1(secretA, "msg_1", now, good)
	flipped := func(s string, i int) string { b := []byte(s); b[i] ^= 1; return string(b) }
	for _, test := range []struct {
		name                     string
		id, timestamp, signature string
		body                     string
		ok                       bool
	}{
		{"v1", "msg_1", now, sign, good, true},
		{"v1 by the other secret, during a rotation", "msg_1", now, v1(secretB, "msg_1", now, good), good, true},
		{"v1a", "msg_1", now, v1a(privateKey, "msg_1", now, good), good, true},
		{"one good signature among strangers", "msg_1", now, "v2,AAAA v1,AAAA x v1,!! " + sign, good, true},
		{"five minutes old", "msg_1", at(-5 * time.Minute), v1(secretA, "msg_1", at(-5*time.Minute), good), good, true},
		{"five minutes early", "msg_1", at(5 * time.Minute), v1(secretA, "msg_1", at(5*time.Minute), good), good, true},

		{"too old", "msg_1", at(-5*time.Minute - time.Second), v1(secretA, "msg_1", at(-5*time.Minute-time.Second), good), good, false},
		{"too early", "msg_1", at(5*time.Minute + time.Second), v1(secretA, "msg_1", at(5*time.Minute+time.Second), good), good, false},
		{"another id", "msg_2", now, sign, good, false},
		{"another time", "msg_1", at(time.Second), sign, good, false},
		{"another body", "msg_1", now, sign, flipped(good, 20), false},
		{"the same JSON in other bytes", "msg_1", now, sign, good + " ", false},
		{"a flipped bit in the signature", "msg_1", now, flipped(sign, 10), good, false},
		{"a flipped bit in the padding of the signature", "msg_1", now, sign[:len(sign)-2] + string(sign[len(sign)-2]+1) + "=", good, false},
		{"an unknown secret", "msg_1", now, v1([]byte("eeeeeeeeeeeeeeeeeeeeeeee"), "msg_1", now, good), good, false},
		{"an unknown key", "msg_1", now, v1a(otherKey, "msg_1", now, good), good, false},
		{"a secret's signature under the other version", "msg_1", now, strings.Replace(sign, "v1,", "v1a,", 1), good, false},
		{"the public key as a secret", "msg_1", now, v1(privateKey.Public().(ed25519.PublicKey), "msg_1", now, good), good, false},
		{"no version", "msg_1", now, strings.TrimPrefix(sign, "v1,"), good, false},
		{"an empty signature", "msg_1", now, "v1,", good, false},
		{"no signature", "msg_1", now, "", good, false},
		{"no id", "", now, v1(secretA, "", now, good), good, false},
		{"no timestamp", "msg_1", "", v1(secretA, "msg_1", "", good), good, false},
		{"a timestamp with a sign", "msg_1", "+" + now, v1(secretA, "msg_1", "+"+now, good), good, false},
		{"a timestamp with a zero in front", "msg_1", "0" + now, v1(secretA, "msg_1", "0"+now, good), good, false},
		{"a timestamp in milliseconds", "msg_1", now + "000", v1(secretA, "msg_1", now+"000", good), good, false},
		{"a timestamp beyond 64 bits", "msg_1", now + "99999999999999", v1(secretA, "msg_1", now+"99999999999999", good), good, false},
		{"a full stop in the id", "msg.1", now, v1(secretA, "msg.1", now, good), good, false},
		{"seventeen signatures", "msg_1", now, strings.Repeat("v1,AAAA ", 16) + sign, good, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, testdb.SQLite(t))
			route(t, e, "/hook", httpinbox.Config[Credit]{Identify: webhooks(t, whsec(secretA), whsec(secretB), whpk(privateKey))})
			header := []string{}
			for name, value := range map[string]string{"Webhook-Id": test.id, "Webhook-Timestamp": test.timestamp, "Webhook-Signature": test.signature} {
				if value != "" {
					header = append(header, name+": "+value)
				}
			}
			r := e.post(t, "/hook", test.body, header...)
			if test.ok {
				r.expectOutcome(t, inbox.Stored)
				if row := e.one(t); row.MessageID != test.id || string(row.Payload) != test.body {
					t.Errorf("stored %q", row)
				}
				return
			}
			r.expect(t, 401, "signature_invalid")
			if r.Header.Get("WWW-Authenticate") == "" {
				t.Error("a 401 without a challenge")
			}
			if rows := e.rows(t); len(rows) > 0 {
				t.Errorf("stored: %q", rows)
			}
		})
	}
}

func TestWebhooksAreVerifiedBeforeTheyAreRead(t *testing.T) {
	t.Parallel()
	e := newEnv(t, testdb.SQLite(t))
	route(t, e, "/hook", httpinbox.Config[Credit]{Identify: webhooks(t, whsec(secretA))})
	now := fmt.Sprint(webhookNow.Unix())
	header := func(id, signature string) []string {
		return []string{"Webhook-Id: " + id, "Webhook-Timestamp: " + now, "Webhook-Signature: " + signature}
	}
	// Bad JSON by a stranger says nothing about our JSON.
	e.post(t, "/hook", "{", header("a", "v1,AAAA")...).expect(t, 401, "signature_invalid")
	e.post(t, "/hook", "{", header("a", v1(secretA, "a", now, "{"))...).expect(t, 400, "malformed_json")
	// Repeated fields: which one was signed?
	e.post(t, "/hook", good, append(header("a", v1(secretA, "a", now, good)), "Webhook-Id: b")...).expect(t, 401, "signature_invalid")
	// A retry has a new time and signature, and the same id.
	e.post(t, "/hook", good, header("a", v1(secretA, "a", now, good))...).expectOutcome(t, inbox.Stored)
	e.post(t, "/hook", good, header("a", v1(secretA, "a", now, good))...).expectOutcome(t, inbox.Duplicate)
	// A sender that would not stop is told that it is fine.
	e.post(t, "/hook", good+" ", header("a", v1(secretA, "a", now, good+" "))...).expectOutcome(t, inbox.Mismatch)
	if row := e.one(t); string(row.Payload) != good {
		t.Errorf("stored %q", row)
	}
}

func TestStandardWebhooksConfigNamesEveryProblemAndNoSecret(t *testing.T) {
	t.Parallel()
	for name, secrets := range map[string][]string{
		"none":            nil,
		"no prefix":       {"c2VjcmV0LXRoYXQtbXVzdC1ub3QtYmUtc2hvd24="},
		"not base64":      {"whsec_shown!"},
		"too short":       {whsec([]byte("shown"))},
		"too long":        {whsec([]byte(strings.Repeat("shown", 13)))},
		"short key":       {"whpk_c2hvd24="},
		"a private key":   {"whsk_" + base64.StdEncoding.EncodeToString(privateKey)},
		"two prefixes":    {"whsec_whpk_" + base64.StdEncoding.EncodeToString(secretA)},
		"a good one, too": {whsec(secretA), "shown"},
	} {
		_, err := httpinbox.StandardWebhooks(httpinbox.StandardWebhooksConfig{Secrets: secrets})
		if err == nil {
			t.Errorf("%s: no error", name)
		} else if strings.Contains(err.Error(), "shown") || strings.Contains(err.Error(), "c2") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
