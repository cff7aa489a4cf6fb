package dashboard_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/dashboard"
	"github.com/letterbox-go/letterbox/inbox"
)

// operations reads the paths and methods of the description: they stand at fixed
// depths, as it is laid out.
func operations(text string) map[string]bool {
	all := map[string]bool{}
	path, inside := "", false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case line == "paths:":
			inside = true
		case line != "" && line[0] != ' ':
			inside = false
		case inside && strings.HasPrefix(line, "  /"):
			path = strings.TrimSuffix(strings.TrimSpace(line), ":")
		case inside && (line == "    get:" || line == "    post:" || line == "    put:" || line == "    patch:" || line == "    delete:"):
			all[strings.ToUpper(strings.TrimSuffix(strings.TrimSpace(line), ":"))+" /api"+path] = true
		}
	}
	return all
}

func TestTheDescriptionMatchesTheRoutes(t *testing.T) {
	t.Parallel()
	routes := map[string]bool{}
	for _, route := range dashboard.Routes() {
		if strings.HasPrefix(route.Pattern, "/api/") {
			routes[route.Method+" "+route.Pattern] = true
		}
	}
	if diff := cmp.Diff(routes, operations(string(dashboard.Description))); diff != "" {
		t.Errorf("routes, described (-, +):\n%s", diff)
	}
}

func TestAPI(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, db *bun.DB) {
		s := newSite(t, db, dashboard.Config{})
		dead := s.die(t, 6, "broken", "")
		stuck := s.die(t, 2, "stuck", "k")[0]

		t.Run("counts", func(t *testing.T) {
			var stats struct {
				Dead       int64
				Parked     int64
				ParkedKeys int64 `json:"parked_keys"`
				Names      map[string]struct{ Dead int64 }
			}
			s.api(t, "GET", "api/stats", "", &stats)
			if stats.Dead != 7 || stats.Parked != 1 || stats.ParkedKeys != 1 || stats.Names["order"].Dead != 7 {
				t.Errorf("%+v", stats)
			}
		})
		t.Run("lists in pages", func(t *testing.T) {
			var list struct {
				Messages []struct {
					ID     int64
					Status string
				}
				Next int64
			}
			seen := 0
			for path := "api/messages?status=dead&limit=3"; ; {
				list.Messages, list.Next = nil, 0
				s.api(t, "GET", path, "", &list)
				seen += len(list.Messages)
				if list.Next == 0 {
					break
				}
				path = fmt.Sprintf("api/messages?status=dead&limit=3&from=%d", list.Next)
			}
			if seen != 7 {
				t.Errorf("%d messages", seen)
			}
			for _, query := range []string{"limit=0", "limit=1001", "limit=x", "status=x", "from=x"} {
				if status := s.api(t, "GET", "api/messages?"+query, "", nil); status != http.StatusBadRequest {
					t.Errorf("%s: %d", query, status)
				}
			}
		})
		t.Run("shows a message without its payload, and the payload on request", func(t *testing.T) {
			path := fmt.Sprintf("api/messages/%d", dead[0])
			r := s.get(t, path)
			wants(t, r.body, `"last_error":"broken"`, `"payload_size":30`)
			wantsNot(t, r.body, "pen")
			var payload struct{ Payload []byte }
			s.api(t, "POST", path+"/payload", "", &payload)
			if string(payload.Payload) != `{"item":"pen","fail":"broken"}` {
				t.Errorf("%q", payload.Payload)
			}
		})
		t.Run("has the verbs", func(t *testing.T) {
			call := func(method, path, body string, want int, act string) {
				t.Helper()
				if got := s.api(t, method, path, body, nil); got != want {
					t.Errorf("%s %s: %d, want %d", method, path, got, want)
				}
				if act != "" && s.lastAct() != act {
					t.Errorf("%s %s: %s, want %s", method, path, s.lastAct(), act)
				}
			}
			call("POST", fmt.Sprintf("api/messages/%d/retry", dead[0]), "", 200, "retry by ann: 1")
			call("POST", fmt.Sprintf("api/messages/%d/discard", dead[1]), "", 200, "discard by ann: 1")
			call("POST", fmt.Sprintf("api/messages/%d/discard", dead[1]), "", 409, "")
			edit := fmt.Sprintf("api/messages/%d/edit", dead[2])
			call("POST", edit, `{"payload":"ew=="}`, 422, "")
			call("POST", edit, ``, 400, "")
			call("POST", edit, `{"payload":"eyJpdGVtIjoibmV3In0="}`, 200, "edit by ann: 1")
			if got := s.detail(t, dead[2]); string(got.Payload) != `{"item":"new"}` || got.Kind != inbox.Pending {
				t.Errorf("%q %v", got.Payload, got.Kind)
			}
			call("POST", "api/keys/skip", `{"key":"k"}`, 200, "skip-key by ann: 1")
			call("POST", "api/keys/skip", `{"key":"k"}`, 404, "")
			call("POST", "api/names/pause", `{"name":"order"}`, 200, "pause by ann: 1")
			wants(t, s.get(t, "api/names/paused").body, `"actor":"ann"`)
			call("POST", "api/names/resume", `{"name":"order"}`, 200, "resume by ann: 1")
			call("POST", "api/names/pause", `{"name":"order","x":1}`, 400, "")
			call("POST", "api/names/pause", `{"name":"order"} {}`, 400, "")
			call("POST", "api/names/pause", `{}`, 400, "")
			call("GET", "api/messages/999999", "", 404, "")
			call("POST", "api/stats", "", 405, "")
			_ = stuck
		})
		t.Run("takes bodies as JSON only", func(t *testing.T) {
			header := http.Header{"Content-Type": {"text/plain"}}
			if r := s.send(t, "ann", "POST", "api/names/pause", header, `{"name":"order"}`); r.status != http.StatusUnsupportedMediaType {
				t.Errorf("%d", r.status)
			}
		})
		t.Run("retries all in a job, after a dry run", func(t *testing.T) {
			var count struct{ Count int64 }
			if status := s.api(t, "POST", "api/retry-all?error=broken", `{"dry_run":true}`, &count); status != 200 || count.Count != 3 {
				t.Fatalf("%d %+v", status, count)
			}
			var job struct {
				ID      string
				Running bool
				Done    int64
				Total   int64
			}
			if status := s.api(t, "POST", "api/retry-all?error=broken", `{"limit":2}`, &job); status != http.StatusAccepted || job.Total != 2 {
				t.Fatalf("%d %+v", status, job)
			}
			eventually(t, "the job is done", func() bool {
				s.api(t, "GET", "api/jobs/"+job.ID, "", &job)
				return !job.Running
			})
			if job.Done != 2 {
				t.Errorf("%+v", job)
			}
			if status := s.api(t, "POST", "api/retry-all", `{"per_second":100000}`, nil); status != 400 {
				t.Errorf("%d", status)
			}
		})
		t.Run("answers errors as problem documents", func(t *testing.T) {
			r := s.get(t, "api/nowhere")
			if r.status != http.StatusNotFound || r.header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%d %v", r.status, r.header)
			}
			wants(t, r.body, `"status":404`)
		})
	})
}
