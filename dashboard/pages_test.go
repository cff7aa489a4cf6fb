package dashboard_test

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/dashboard"
	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

func TestPages(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, db *bun.DB) {
		s := newSite(t, db, dashboard.Config{TraceURL: "https://traces.example/t/{trace}", PageSize: 10})
		const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
		processed := s.accept(t, inbox.Entry{
			MessageID: "fine", Message: order{Item: "papyrus"}, Source: "shop",
			Metadata: map[string]string{"traceparent": "00-" + trace + "-00f067aa0ba902b7-01", "tenant": "north"},
		})[0]
		s.drain(t)
		dead := s.die(t, 3, "no such <account>", "k1")
		s.die(t, 12, "out of stock", "")
		pending := s.accept(t, inbox.Entry{MessageID: "later", Message: order{Item: "pad"}, Due: time.Now().Add(time.Hour)})[0]

		t.Run("the overview counts and names what needs attention", func(t *testing.T) {
			text := s.page(t, "")
			wants(t, text, "13 dead messages", "1 ordering key is held up", "order", "shop", "No processor is running")
		})
		t.Run("the list shows the newest first, and pages on", func(t *testing.T) {
			first := s.page(t, "messages")
			wants(t, first, fmt.Sprintf(`href="./messages/%d"`, pending), "Older")
			next := regexp.MustCompile(`href="\./(messages\?from=[0-9]+)"`).FindStringSubmatch(first)
			if next == nil {
				t.Fatal(first)
			}
			second := s.page(t, next[1])
			wants(t, second, fmt.Sprintf(`href="./messages/%d"`, processed), "Newest")
			wantsNot(t, second, fmt.Sprintf(`href="./messages/%d"`, pending))
		})
		t.Run("the list filters", func(t *testing.T) {
			for query, want := range map[string]int64{
				"status=processed": processed, "status=pending": pending, "status=parked": dead[1], "key=k1": dead[0], "id=later": pending,
				"source=shop&status=processed": processed, "status=dead&error=ACCOUNT": dead[0], "error=account": dead[0],
				"after=2020-01-01T00:00&status=processed": processed,
			} {
				wants(t, s.page(t, "messages?"+query), fmt.Sprintf(`href="./messages/%d"`, want))
			}
			for _, query := range []string{"name=other", "status=discarded", "before=2020-01-01T00:00", "status=failing", "source=nowhere"} {
				wants(t, s.page(t, "messages?"+query), "No message matches")
			}
		})
		t.Run("a filter that is not understood is refused, and not widened", func(t *testing.T) {
			for _, query := range []string{"status=gone", "after=yesterday", "before=x", "name=%00", "from=x", "number=x", "id=a%ffb"} {
				if r := s.get(t, "messages?"+query); r.status/100 != 4 {
					t.Errorf("%s: %d", query, r.status)
				}
			}
		})
		t.Run("a number leads to its message", func(t *testing.T) {
			r := s.get(t, fmt.Sprintf("messages?number=%%23%d", pending))
			if r.status != http.StatusSeeOther || r.header.Get("Location") != fmt.Sprintf("./messages/%d", pending) {
				t.Errorf("%d %q", r.status, r.header.Get("Location"))
			}
		})
		t.Run("a message shows all but its payload, which is shown on request", func(t *testing.T) {
			path := fmt.Sprintf("messages/%d", processed)
			text := s.page(t, path)
			wants(t, text, "processed", "shop", "tenant", "north", `href="https://traces.example/t/`+trace+`"`, "Show payload")
			wantsNot(t, text, "papyrus")
			shown := s.post(t, path+"/payload")
			wants(t, shown.body, "&#34;item&#34;: &#34;papyrus&#34;", "Shown as JSON")
			wants(t, s.log.String(), "payload shown", "actor=ann")
			file := s.post(t, path+"/payload", "as", "file")
			if file.body != `{"item":"papyrus"}` || !strings.HasPrefix(file.header.Get("Content-Disposition"), "attachment") {
				t.Errorf("%v %q", file.header, file.body)
			}
		})
		t.Run("a dead message says why, one that waits for whom", func(t *testing.T) {
			wants(t, s.page(t, fmt.Sprintf("messages/%d", dead[0])), "Why it died", "no such &lt;account&gt;", "holds up the key")
			wants(t, s.page(t, fmt.Sprintf("messages/%d", dead[1])), "parked", "Waits for", fmt.Sprintf("#%d", dead[0]))
		})
		t.Run("dead messages are grouped by error", func(t *testing.T) {
			text := s.page(t, "dead")
			wants(t, text, "out of stock", "no such &lt;account&gt;", "k1")
			link := regexp.MustCompile(`href="\./(messages\?error=out[^"]*)"`).FindStringSubmatch(text)
			if link == nil {
				t.Fatal(text)
			}
			list := s.page(t, html.UnescapeString(link[1]))
			wants(t, list, "out of stock")
			wantsNot(t, list, "no such")
		})
		t.Run("what does not exist is a page that says so", func(t *testing.T) {
			for _, path := range []string{"messages/999999", "messages/x", "messages/-1", "nowhere", "jobs/x", "messages/", "assets/none"} {
				if r := s.get(t, path); r.status != http.StatusNotFound || !strings.Contains(r.body, "<h1") {
					t.Errorf("%s: %d", path, r.status)
				}
			}
		})
		t.Run("the doctor's page shows a report", func(t *testing.T) {
			wants(t, s.page(t, "doctor"), "examined in")
		})
	})
}

func TestEmptyPages(t *testing.T) {
	t.Parallel()
	s := newSite(t, testdb.SQLite(t), dashboard.Config{})
	for path, want := range map[string]string{
		"": "Nothing was processed in the last hour", "messages": "There are no messages yet", "messages?name=x": "No message matches",
		"dead": "No message is dead", "names": "No name has unfinished messages", "jobs": "No job has run",
	} {
		wants(t, s.page(t, path), want)
	}
	t.Run("a database without tables is an error page, and no secret", func(t *testing.T) {
		t.Parallel()
		empty := newSite(t, testdb.SQLite(t), dashboard.Config{})
		if _, err := empty.db.ExecContext(t.Context(), "DROP TABLE inbox_queue"); err != nil {
			t.Fatal(err)
		}
		r := empty.get(t, "")
		if r.status != http.StatusServiceUnavailable {
			t.Errorf("%d", r.status)
		}
		wantsNot(t, r.body, "inbox_queue")
		wants(t, empty.log.String(), "inbox_queue")
	})
}

func TestTimeLimit(t *testing.T) {
	t.Parallel()
	s := newSite(t, testdb.PGX(t), dashboard.Config{Timeout: time.Nanosecond})
	for _, path := range []string{"", "messages", "dead", "names", "api/stats"} {
		if r := s.get(t, path); r.status != http.StatusServiceUnavailable {
			t.Errorf("%s: %d", path, r.status)
		}
	}
}

// links are the addresses that a page leads to.
var links = regexp.MustCompile(`(?:href|src|method="post" action)="([^"]*)"`)

func TestEveryLinkLeadsSomewhere(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"/", "/inbox/", "/a/b/"} {
		t.Run(prefix, func(t *testing.T) {
			t.Parallel()
			s := newSiteAt(t, testdb.SQLite(t), dashboard.Config{PageSize: 3}, prefix)
			s.die(t, 5, "broken & bent?", "k/1 ü&x=y")
			s.die(t, 1, "100 %", "")
			if err := s.repo.Pause(t.Context(), "order"); err != nil {
				t.Fatal(err)
			}
			seen := map[string]bool{s.root: true}
			for queue := []string{s.root}; len(queue) > 0; queue = queue[1:] {
				r := s.get(t, queue[0])
				if r.status != http.StatusOK {
					t.Errorf("GET %s: %d", queue[0], r.status)
				}
				base, err := url.Parse(queue[0])
				if err != nil {
					t.Fatal(err)
				}
				for _, match := range links.FindAllStringSubmatch(r.body, -1) {
					target, err := base.Parse(html.UnescapeString(match[1]))
					if err != nil {
						t.Fatal(err)
					}
					if strings.HasPrefix(match[1], "/") || !strings.HasPrefix(target.String(), s.root) {
						t.Errorf("%s leads to %s", queue[0], match[1])
					}
					target.Fragment = ""
					post := strings.HasSuffix(target.Path, "/payload") || strings.HasSuffix(target.Path, "/edit")
					if address := target.String(); !seen[address] && !post && len(seen) < 200 {
						seen[address] = true
						queue = append(queue, address)
					}
				}
			}
			if len(seen) < 40 {
				t.Errorf("only %d pages", len(seen))
			}
		})
	}
}

func TestListsCarryNoPayloads(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, db *bun.DB) {
		s := newSite(t, db, dashboard.Config{})
		id := s.accept(t, inbox.Entry{MessageID: "large", Message: order{Item: strings.Repeat("papyrus", 5<<20/7), Fail: "too large"}})[0]
		s.drain(t)
		for _, path := range []string{
			"", "messages", "messages?status=dead", "dead", "names", fmt.Sprintf("messages/%d", id), fmt.Sprintf("messages/%d/retry", id),
			"api/messages", fmt.Sprintf("api/messages/%d", id),
		} {
			if text := s.page(t, path); len(text) > 100_000 || strings.Contains(text, "papyrus") {
				t.Errorf("%s: %d bytes", path, len(text))
			}
		}
		shown := s.post(t, fmt.Sprintf("messages/%d/payload", id)).body
		if len(shown) > 1_000_000 {
			t.Errorf("the payload on a page: %d bytes", len(shown))
		}
		wants(t, shown[len(shown)-1000:], "Only the beginning is shown")
	})
}
