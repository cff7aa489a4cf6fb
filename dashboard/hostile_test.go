package dashboard_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/dashboard"
	"github.com/letterbox-go/letterbox/inbox"
)

// hostile is what a sender may put anywhere.
const hostile = `"><script>alert(1)</script><img src=x onerror=alert(2)>'javascript:alert(3)`

// escapes are what a terminal or a line of text would obey.
const escapes = "\x1b[31m\x1b]0;title\x07\u009b2J\u202eevil\u2066\u200b"

// inputs are fields with what the visitor has typed, which stays as it is.
var inputs = regexp.MustCompile(`(?s)<input [^>]*>`)

func TestStoredTextIsInert(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, db *bun.DB) {
		s := newSite(t, db, dashboard.Config{TraceURL: "https://traces.example/{trace}"})
		// Identifiers take no control characters, but marks of direction.
		identifier := hostile + "\u202e\u2066"
		text := hostile + escapes
		dead := s.accept(t,
			inbox.Entry{
				Source: identifier, MessageID: identifier, OrderingKey: identifier,
				Message: order{Item: text, Fail: text}, Metadata: map[string]string{text: text, "traceparent": "javascript:alert(1)"},
			},
			inbox.Entry{Source: "javascript:alert(4)", MessageID: "javascript:alert(5)", OrderingKey: identifier, Message: order{Item: text}},
		)[0]
		s.drain(t)
		unknown := identifier + "name"
		if _, err := s.db.NewRaw("UPDATE inbox_messages SET name = ? WHERE id = ?", unknown, dead).Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.db.NewRaw("UPDATE inbox_queue SET name = ? WHERE id = ?", unknown, dead).Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.repo.Pause(inbox.WithActor(t.Context(), text), unknown); err != nil {
			t.Fatal(err)
		}

		check := func(t *testing.T, what string, r reply) {
			t.Helper()
			if r.status >= 500 {
				t.Errorf("%s: %d\n%s", what, r.status, r.body)
			}
			for _, r := range inputs.ReplaceAllString(r.body, "") {
				if r < 0x20 && r != '\n' && r != '\t' || r >= 0x7f && r <= 0x9f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0x200b {
					t.Errorf("%s: %q", what, r)
					break
				}
			}
			if strings.HasPrefix(r.header.Get("Content-Type"), "application/json") {
				if !json.Valid([]byte(r.body)) {
					t.Errorf("%s: no JSON", what)
				}
			}
			lower := strings.ToLower(r.body)
			wantsNot(t, lower, "<script>alert", "<img", `href="javascript`, `href='javascript`, "style=")
		}
		shown := 0
		for _, route := range dashboard.Routes() {
			path := sample(route.Pattern, dead)
			switch {
			case route.Pattern == "/messages" || route.Pattern == "/api/messages" || route.Pattern == "/retry-all":
				path = strings.TrimPrefix(route.Pattern, "/")
				check(t, path, s.get(t, path+"?error="+query(hostile)+"&source="+query(identifier)+"&name="+query(unknown)))
				check(t, path, s.get(t, path+"?status="+query(hostile)))
			case strings.HasPrefix(route.Pattern, "/names/") || strings.HasPrefix(route.Pattern, "/keys/"):
				path = strings.TrimPrefix(route.Pattern, "/") + "?name=" + query(unknown) + "&key=" + query(identifier)
			}
			if route.Method == http.MethodGet {
				r := s.get(t, path)
				check(t, path, r)
				if strings.Contains(r.body, "script&gt;alert(1)") || strings.Contains(r.body, `\u003cscript\u003ealert(1)`) {
					shown++
				}
			}
		}
		if shown < 10 {
			t.Errorf("the text was on %d pages only: does the test look at the right ones?", shown)
		}
		path := fmt.Sprintf("messages/%d", dead)
		check(t, "payload", s.post(t, path+"/payload"))
		check(t, "edit", s.post(t, path+"/edit"))
		check(t, "edit, refused", s.post(t, path+"/edit", "step", "check", "payload", hostile))
		compared := s.post(t, path+"/edit", "step", "check", "payload", `{"item":"<script>alert(1)</script>"}`, "force", "yes")
		wants(t, compared.body, "Save and retry")
		check(t, "edit, compared", compared)
		check(t, "payload in JSON", s.send(t, "ann", http.MethodPost, "api/"+path+"/payload", nil, ""))
		check(t, "refused in JSON", s.send(t, "ann", http.MethodPost, "api/"+path+"/edit", http.Header{"Content-Type": {"application/json"}}, `{"<script>alert(1)</script>\u009b":1}`))
	})
}

func query(text string) string { return url.QueryEscape(text) }
