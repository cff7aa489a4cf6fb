package httpinbox_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/transport/httpinbox"
)

// head starts a request on the wire; %d is the length of the body.
const head = "POST /credits HTTP/1.1\nHost: x\nIdempotency-Key: k\nContent-Type: application/json\n"

func withLength(head, body string) string {
	return fmt.Sprintf("%sContent-Length: %d\n\n%s", head, len(body), body)
}

const good = `{"account":"alice","cents":500}`

func TestRefusedRequestsStoreNothing(t *testing.T) {
	t.Parallel()
	headWith := func(old, replacement string) string { return strings.Replace(head, old, replacement, 1) }
	const field = "Idempotency-Key: k\n"
	tests := []struct {
		name    string
		request string
		status  int
		code    string
		header  string // that has to be there, "Name: value"
	}{
		{"GET", "GET /credits HTTP/1.1\nHost: x\n\n", 405, "method_not_allowed", "Allow: POST"},
		{"PUT", withLength(headWith("POST", "PUT"), good), 405, "method_not_allowed", "Allow: POST"},
		{"a body that is no JSON", withLength(head, `{"account":`), 400, "malformed_json", ""},
		{"an empty body", withLength(head, ""), 400, "malformed_json", ""},
		{"no body at all", head + "\n", 400, "malformed_json", ""},
		{"two JSON values", withLength(head, good+good), 400, "malformed_json", ""},
		{"a byte order mark", withLength(head, "\ufeff"+good), 400, "malformed_json", ""},
		{"a text where a number belongs", withLength(head, `{"account":"alice","cents":"5"}`), 422, "wrong_shape", ""},
		{"an array instead of an object", withLength(head, `[]`), 422, "wrong_shape", ""},
		{"what Validate refuses", withLength(head, `{"cents":5}`), 422, "wrong_shape", ""},
		{"what Config.Validate refuses", withLength(head, `{"account":"alice","cents":-1}`), 422, "wrong_shape", ""},
		{"a number that does not fit", withLength(head, `{"account":"a","cents":1e400}`), 422, "wrong_shape", ""},
		{"a declared length over the limit", head + "Content-Length: 201\n\n", 413, "too_large", ""},
		{"a chunked body over the limit", head + "Transfer-Encoding: chunked\n\nc9\r\n" + strings.Repeat(" ", 201) + "\r\n0\r\n\r\n", 413, "too_large", ""},
		{"another media type", withLength(headWith("application/json", "text/plain"), good), 415, "unsupported_media_type", "Accept: application/json"},
		{"no media type", withLength(headWith("Content-Type: application/json\n", ""), good), 415, "unsupported_media_type", ""},
		{"a media type that is none", withLength(headWith("application/json", "application/json;;=")+"X: y\n", good), 415, "unsupported_media_type", ""},
		{"two media types", withLength(head+"Content-Type: application/json\n", good), 400, "unsupported_media_type", ""},
		{"another charset", withLength(headWith("application/json", "application/json; charset=utf-16"), good), 415, "unsupported_media_type", ""},
		{"a compressed body", withLength(head+"Content-Encoding: gzip\n", good), 415, "unsupported_media_type", "Accept-Encoding: identity"},
		{"no key", withLength(headWith(field, ""), good), 400, "message_id_missing", ""},
		{"an empty key", withLength(headWith(field, "Idempotency-Key:\n"), good), 400, "message_id_missing", ""},
		{"an empty quoted key", withLength(headWith(field, "Idempotency-Key: \"\"\n"), good), 400, "message_id_invalid", ""},
		{"two keys", withLength(head+field, good), 400, "message_id_invalid", ""},
		{"a list of keys", withLength(headWith(field, "Idempotency-Key: \"a\", \"b\"\n"), good), 400, "message_id_invalid", ""},
		{"a bare list of keys", withLength(headWith(field, "Idempotency-Key: a,b\n"), good), 400, "message_id_invalid", ""},
		{"a key without its closing quote", withLength(headWith(field, "Idempotency-Key: \"a\n"), good), 400, "message_id_invalid", ""},
		{"a key with an unknown escape", withLength(headWith(field, "Idempotency-Key: \"a\\n\"\n"), good), 400, "message_id_invalid", ""},
		{"a key that is not ASCII", withLength(headWith(field, "Idempotency-Key: \"é\"\n"), good), 400, "message_id_invalid", ""},
		{"a bare key with a space", withLength(headWith(field, "Idempotency-Key: a b\n"), good), 400, "message_id_invalid", ""},
		{"a key of 257 bytes", withLength(headWith(field, "Idempotency-Key: "+strings.Repeat("k", 257)+"\n"), good), 400, "message_id_invalid", ""},
		{"a body that ends early", head + "Content-Length: 100\n\n" + good, 400, "incomplete_body", ""},
		{"a chunked body that ends early", head + "Transfer-Encoding: chunked\n\n1f\r\n" + good + "\r\n", 400, "incomplete_body", ""},
	}
	databases(t, func(t *testing.T, db *bun.DB) {
		e := newEnv(t, db)
		route(t, e, "/credits", httpinbox.Config[Credit]{
			Identify: httpinbox.IdempotencyKey(),
			MaxBody:  200,
			Validate: func(c Credit) error {
				if c.Cents < 0 {
					return &httpinbox.Problem{Status: 422, Code: "wrong_shape", Detail: "cents: negative"}
				}
				return nil
			},
		})
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				r := e.raw(t, test.request)
				r.expect(t, test.status, test.code)
				if name, value, _ := strings.Cut(test.header, ": "); r.Header.Get(name) != value {
					t.Errorf("%s: %q, want %q", name, r.Header.Get(name), value)
				}
				if rows := e.rows(t); len(rows) > 0 {
					t.Fatalf("stored: %q", rows)
				}
			})
		}
	})
}

func TestAcceptedRequestsAreStoredAsReceived(t *testing.T) {
	t.Parallel()
	big := `{"account":"` + strings.Repeat("a", 9000) + `"}`
	tests := []struct {
		name    string
		request string
		id      string
		payload string
	}{
		{"a bare key", withLength(head, good), "k", good},
		{"a quoted key", withLength(strings.Replace(head, ": k", `: "k"`, 1), good), "k", good},
		{"a quoted key with escapes and a space", withLength(strings.Replace(head, ": k", `: "a \"b\" \\c"`, 1), good), `a "b" \c`, good},
		{"a quoted key with parameters", withLength(strings.Replace(head, ": k", `: "k"; a; b=?1;*c="x;\"y"`, 1), good), "k", good},
		{"a charset and capitals in the media type", withLength(strings.Replace(head, "application/json", "Application/JSON; charset=UTF-8", 1), good), "k", good},
		{"a chunked body", head + "Transfer-Encoding: chunked\n\n10\r\n" + good[:16] + "\r\nf\r\n" + good[16:] + "\r\n0\r\n\r\n", "k", good},
		{"Expect: 100-continue", withLength(head+"Expect: 100-continue\n", good), "k", good},
		{"a body of 9 kB", withLength(head, big), "k", big},
		{
			"white space, unknown and repeated members, escapes, long numbers, bytes that are not UTF-8",
			withLength(head, " {\"account\":\"\\u0000\\ud800\xff\",\"x\":9007199254740993, \"x\":1e400}\n"), "k",
			" {\"account\":\"\\u0000\\ud800\xff\",\"x\":9007199254740993, \"x\":1e400}\n",
		},
		{"zero, where the type allows it", withLength(strings.Replace(head, "/credits", "/amounts", 1), "0"), "k", "0"},
		{"{}, where the type allows it", withLength(strings.Replace(head, "/credits", "/anything", 1), "{}"), "k", "{}"},
		{"a type registered as a pointer", withLength(strings.Replace(head, "/credits", "/renamed", 1), `{"note":"x"}`), "k", `{"note":"x"}`},
		{"a value for a type registered as a pointer", withLength(strings.Replace(head, "/credits", "/value", 1), `{"note":"x"}`), "k", `{"note":"x"}`},
		{"any registered type behind an interface", withLength(strings.Replace(head, "/credits", "/any", 1), `{"note":"x"}`), "k", `{"note":"x"}`},
	}
	databases(t, func(t *testing.T, db *bun.DB) {
		e := newEnv(t, db)
		key := httpinbox.IdempotencyKey()
		route(t, e, "/credits", httpinbox.Config[Credit]{Identify: key, Source: "shop", StatusURL: httpinbox.StatusPath("/credits/")})
		route(t, e, "/amounts", httpinbox.Config[Amount]{Identify: key, Source: "shop"})
		route(t, e, "/anything", httpinbox.Config[Anything]{Identify: key, Source: "shop"})
		route(t, e, "/renamed", httpinbox.Config[*Renamed]{Identify: key, Source: "shop"})
		route(t, e, "/value", httpinbox.Config[Renamed]{Identify: key, Source: "shop"})
		route(t, e, "/any", httpinbox.Config[any]{Identify: key, Source: "shop", Name: "old"})
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				if _, err := db.ExecContext(t.Context(), `DELETE FROM inbox_messages`); err != nil {
					t.Fatal(err)
				}
				r := e.raw(t, test.request)
				r.expectOutcome(t, inbox.Stored)
				if r.answer.MessageID != test.id || r.Header.Get("Location") != r.answer.StatusURL {
					t.Errorf("%s, Location %q", r.text, r.Header.Get("Location"))
				}
				row := e.one(t)
				if row.MessageID != test.id || row.Source != "shop" || string(row.Payload) != test.payload {
					t.Errorf("stored %q", row)
				}
				e.raw(t, test.request).expectOutcome(t, inbox.Duplicate)
				e.one(t)
			})
		}
	})
}

func TestAClientThatGoesAwayInTheMiddleStoresNothing(t *testing.T) {
	t.Parallel()
	e := newEnv(t, testdb.SQLite(t))
	route(t, e, "/credits", httpinbox.Config[Credit]{Identify: httpinbox.IdempotencyKey()})
	for _, request := range []string{
		head + "Content-Length: 100\n\n" + good,
		head + "Transfer-Encoding: chunked\n\n1f\r\n" + good + "\r\n",
	} {
		before := e.handled.Load()
		conn := e.dial(t, request)
		if err := conn.SetLinger(0); err != nil { // reset instead of an orderly end
			t.Fatal(err)
		}
		conn.Close()
		eventually(t, "the handler returned", func() bool { return e.handled.Load() > before })
		if rows := e.rows(t); len(rows) > 0 {
			t.Fatalf("stored: %q", rows)
		}
	}
}

func TestNoBodyIsReadForARequestThatItsHeaderRefuses(t *testing.T) {
	t.Parallel()
	e := newEnv(t, testdb.SQLite(t))
	route(t, e, "/credits", httpinbox.Config[Credit]{Identify: httpinbox.IdempotencyKey()})
	// The body never comes: an answer shows that nobody waits for it.
	for _, request := range []string{
		strings.Replace(head, "Idempotency-Key: k\n", "", 1),
		strings.Replace(head, "json", "xml", 1),
	} {
		conn := e.dial(t, request+"Expect: 100-continue\nContent-Length: 100\n\n")
		defer conn.Close()
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(line, "HTTP/1.1 4") {
			t.Errorf("%q", line)
		}
	}
}

func TestSameKeyWithAnotherBodyIsRefused(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, db *bun.DB) {
		e := newEnv(t, db)
		route(t, e, "/credits", httpinbox.Config[Credit]{Identify: httpinbox.IdempotencyKey()})
		route(t, e, "/lenient", httpinbox.Config[Credit]{Identify: httpinbox.IdempotencyKey(), Mismatch: httpinbox.MismatchAccept})
		secret := `{"account":"hunter2","cents":1}`
		e.post(t, "/credits", good, "Idempotency-Key: k").expectOutcome(t, inbox.Stored)
		e.post(t, "/credits", secret, "Idempotency-Key: k").expect(t, 422, "mismatch")
		e.post(t, "/lenient", secret, "Idempotency-Key: k").expectOutcome(t, inbox.Mismatch)
		if got := string(e.one(t).Payload); got != good {
			t.Errorf("stored %q", got)
		}
		if log := e.log.String(); !strings.Contains(log, "another body") || strings.Contains(log, "hunter2") {
			t.Errorf("log: %s", log)
		}
	})
}

func TestKeysAreScopedByTheirSource(t *testing.T) {
	t.Parallel()
	e := newEnv(t, testdb.SQLite(t))
	route(t, e, "/credits", httpinbox.Config[Credit]{
		Identify: httpinbox.IdempotencyKey(),
		SourceFunc: func(r *http.Request) (string, error) {
			user, _, ok := r.BasicAuth()
			if !ok {
				return "", &httpinbox.Problem{Status: 401, Code: "who", Detail: "who are you?"}
			}
			if user == "mallory" {
				return "", io.ErrClosedPipe
			}
			return user, nil
		},
	})
	for _, user := range []string{"alice", "bob"} {
		r, err := http.NewRequest(http.MethodPost, e.server.URL+"/credits", strings.NewReader(good))
		if err != nil {
			t.Fatal(err)
		}
		r.SetBasicAuth(user, "x")
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", "1")
		e.do(t, r).expectOutcome(t, inbox.Stored)
	}
	e.post(t, "/credits", good, "Idempotency-Key: 1").expect(t, 401, "who")
	e.post(t, "/credits", good, "Idempotency-Key: 1", "Authorization: Basic bWFsbG9yeTp4").expect(t, 403, "source_refused")
	var sources []string
	for _, row := range e.rows(t) {
		sources = append(sources, row.Source)
	}
	if diff := cmp.Diff([]string{"alice", "bob"}, sources); diff != "" {
		t.Error(diff)
	}
}

func TestIDFromTheBody(t *testing.T) {
	t.Parallel()
	e := newEnv(t, testdb.SQLite(t))
	route(t, e, "/credits", httpinbox.Config[Credit]{
		Identify: httpinbox.FromBody(func(c Credit) string { return c.ID }),
		Entry: func(r *http.Request, c Credit, entry *inbox.Entry) error {
			if c.Account == "closed" {
				return fmt.Errorf("the account is closed")
			}
			entry.OrderingKey = c.Account
			return nil
		},
	})
	e.post(t, "/credits", `{"id":"a","account":"x"}`).expectOutcome(t, inbox.Stored)
	e.post(t, "/credits", `{"id":"a","account":"x"}`).expectOutcome(t, inbox.Duplicate)
	e.post(t, "/credits", `{"id":"a","account":"y"}`).expect(t, 422, "mismatch")
	e.post(t, "/credits", `{"account":"x"}`).expect(t, 422, "message_id_invalid")
	e.post(t, "/credits", `{"id":"b","account":"closed"}`).expect(t, 422, "wrong_shape")
	// encoding/json would make one id of these two.
	e.post(t, "/credits", `{"id":"\ud800","account":"x"}`).expect(t, 422, "message_id_invalid")
	e.post(t, "/credits", "{\"id\":\"\xff\",\"account\":\"x\"}").expect(t, 422, "message_id_invalid")
	e.post(t, "/credits", `{"id":"a\u0000","account":"x"}`).expect(t, 400, "message_id_invalid")
	e.one(t)
}

func TestTheRepositorysOwnLimitIsAnswered413(t *testing.T) {
	t.Parallel()
	e := newEnv(t, testdb.SQLite(t))
	route(t, e, "/credits", httpinbox.Config[Credit]{Identify: httpinbox.IdempotencyKey(), MaxBody: 4 << 20})
	body := `{"account":"` + strings.Repeat("a", 2<<20) + `"}`
	e.post(t, "/credits", body, "Idempotency-Key: k").expect(t, 413, "too_large")
}

func TestConfigProblemsAreAllReported(t *testing.T) {
	t.Parallel()
	e := newEnv(t, testdb.SQLite(t))
	type unknown struct{}
	for _, test := range []struct {
		name string
		err  error
		want []string
	}{
		{"empty", second(httpinbox.New(e.repo, httpinbox.Config[Credit]{})), []string{"Identify"}},
		{"no repository", second(httpinbox.New(nil, httpinbox.Config[Credit]{Identify: httpinbox.IdempotencyKey()})), []string{"repository"}},
		{"a type that is not registered", second(httpinbox.New(e.repo, httpinbox.Config[unknown]{Identify: httpinbox.IdempotencyKey()})), []string{"Name"}},
		{"an interface without a name", second(httpinbox.New(e.repo, httpinbox.Config[any]{Identify: httpinbox.IdempotencyKey()})), []string{"Name"}},
		{"FromBody of another type", second(httpinbox.New(e.repo, httpinbox.Config[Credit]{Identify: httpinbox.FromBody(func(Amount) string { return "" })})), []string{"FromBody"}},
		{"an event type with an unknown name", second(httpinbox.New(e.repo, httpinbox.Config[any]{Identify: httpinbox.CloudEvents(httpinbox.CloudEventsConfig{Names: map[string]string{"t": "nope"}})})), []string{"nope"}},
		{"several", second(httpinbox.New(e.repo, httpinbox.Config[Credit]{
			Name: "nope", Source: "a", SourceFunc: func(*http.Request) (string, error) { return "", nil },
			MediaTypes: []string{"application/json; charset=utf-8"}, MaxBody: -1, RetryAfter: -1, Mismatch: 9,
		})), []string{"Identify", "nope", "SourceFunc", "MediaTypes", "MaxBody", "RetryAfter", "Mismatch"}},
		{"a status route without a name", second(httpinbox.NewStatus(e.repo, httpinbox.StatusConfig{})), []string{"Name"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.err == nil {
				t.Fatal("no error")
			}
			for _, want := range test.want {
				if !strings.Contains(test.err.Error(), want) {
					t.Errorf("%v: does not speak of %s", test.err, want)
				}
			}
		})
	}
}

func second(_ http.Handler, err error) error { return err }
