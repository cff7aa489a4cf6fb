package dashboard_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/dashboard"
	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

func TestVerbs(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, db *bun.DB) {
		s := newSite(t, db, dashboard.Config{})

		t.Run("retry asks, and then lets the message run again", func(t *testing.T) {
			id := s.die(t, 1, "retry me", "")[0]
			path := fmt.Sprintf("messages/%d/retry", id)
			wants(t, s.page(t, path), "Retry this message?", "retry me", "<button")
			wants(t, s.follow(t, path), "The message runs again")
			if got := s.detail(t, id); got.Kind != inbox.Pending || s.lastAct() != "retry by ann: 1" {
				t.Errorf("%v, %s", got.Kind, s.lastAct())
			}
			s.drain(t)
		})
		t.Run("a verb that does not fit is refused, and the page says why", func(t *testing.T) {
			id := s.accept(t, inbox.Entry{MessageID: "done", Message: order{}})[0]
			s.drain(t)
			for _, verb := range []string{"retry", "discard", "edit"} {
				if r := s.post(t, fmt.Sprintf("messages/%d/%s", id, verb)); r.status != http.StatusConflict || !strings.Contains(r.body, "cannot be") {
					t.Errorf("%s: %d\n%s", verb, r.status, r.body)
				}
				if r := s.post(t, "messages/999999/"+verb); r.status != http.StatusNotFound {
					t.Errorf("%s: %d", verb, r.status)
				}
			}
		})
		t.Run("discard gives a message up", func(t *testing.T) {
			id := s.die(t, 1, "useless", "")[0]
			path := fmt.Sprintf("messages/%d/discard", id)
			wants(t, s.page(t, path), "Discard this message?")
			wants(t, s.follow(t, path), "is discarded")
			if got := s.detail(t, id); !got.Discarded || s.lastAct() != "discard by ann: 1" {
				t.Errorf("%v, %s", got.Discarded, s.lastAct())
			}
		})
		t.Run("skip lets a key go on", func(t *testing.T) {
			const key = "customer 1/ü&?"
			ids := s.die(t, 1, "stuck", key)
			behind := s.accept(t, inbox.Entry{MessageID: "behind", Message: order{}, OrderingKey: key})[0]
			s.drain(t)
			path := "keys/skip?key=" + url.QueryEscape(key)
			wants(t, s.page(t, path), "customer 1/ü&amp;?")
			wants(t, s.follow(t, path), "goes on without its dead messages")
			s.drain(t)
			if got := s.detail(t, behind); got.Kind != inbox.Processed || s.lastAct() != "skip-key by ann: 1" {
				t.Errorf("%v, %s", got.Kind, s.lastAct())
			}
			if got := s.detail(t, ids[0]); got.Kind != inbox.Dead {
				t.Error(got.Kind)
			}
			if r := s.post(t, path); r.status != http.StatusNotFound {
				t.Errorf("again: %d", r.status)
			}
		})
		t.Run("pause and resume hold a name, and show by whom", func(t *testing.T) {
			wants(t, s.page(t, "names/pause?name=order"), "Pause this name?")
			wants(t, s.follow(t, "names/pause?name=order"), "The name is paused", "by ann")
			wants(t, s.page(t, ""), "is paused by ann")
			wants(t, s.page(t, "names/resume?name=order"), "Resume this name?")
			wantsNot(t, s.follow(t, "names/resume?name=order"), "by ann")
			if s.lastAct() != "resume by ann: 1" {
				t.Error(s.lastAct())
			}
			for _, name := range []string{"", "a%00b", "a%ff", strings.Repeat("x", 300)} {
				if r := s.post(t, "names/pause?name="+name); r.status != http.StatusBadRequest {
					t.Errorf("name %q: %d", name, r.status)
				}
			}
		})
	})
}

func TestEdit(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, db *bun.DB) {
		s := newSite(t, db, dashboard.Config{})
		id := s.die(t, 1, "bad", "")[0]
		path := fmt.Sprintf("messages/%d/edit", id)

		t.Run("begins with the payload in a form", func(t *testing.T) {
			r := s.post(t, path)
			wants(t, r.body, "<textarea", "&#34;item&#34;:&#34;pen&#34;", "Compare")
			if r.header.Get("Cache-Control") != "no-store" {
				t.Error(r.header)
			}
		})
		t.Run("shows what the codec refuses, and keeps what was typed", func(t *testing.T) {
			for _, payload := range []string{"{", `{"item":7}`, `{} {}`} {
				r := s.post(t, path, "step", "check", "payload", payload)
				if r.status != http.StatusUnprocessableEntity {
					t.Errorf("%q: %d", payload, r.status)
				}
				wants(t, r.body, "Not accepted", "<textarea")
			}
		})
		t.Run("compares before it saves, and changes nothing until then", func(t *testing.T) {
			r := s.post(t, path, "step", "check", "payload", "{\"item\":\r\n\"pencil\"}")
			wants(t, r.body, "Save and retry", `pencil`, `line old`, `line new`)
			again := s.post(t, path, "step", "again", "encoded", field(t, r.body, "encoded"))
			wants(t, again.body, "{&#34;item&#34;:\n&#34;pencil&#34;}")
			if got := s.detail(t, id); string(got.Payload) != `{"item":"pen","fail":"bad"}` || got.Kind != inbox.Dead {
				t.Fatalf("%q %v", got.Payload, got.Kind)
			}
			wants(t, s.follow(t, path, "step", "save", "encoded", field(t, r.body, "encoded"), "was", field(t, r.body, "was")), "The payload is changed")
			if s.lastAct() != "edit by ann: 1" {
				t.Error(s.lastAct())
			}
			s.drain(t)
			if got := s.detail(t, id); string(got.Payload) != "{\"item\":\n\"pencil\"}" || got.Kind != inbox.Processed {
				t.Errorf("%q %v", got.Payload, got.Kind)
			}
		})
		t.Run("does not overwrite what somebody else has changed meanwhile", func(t *testing.T) {
			id := s.die(t, 1, "race", "")[0]
			path := fmt.Sprintf("messages/%d/edit", id)
			r := s.post(t, path, "step", "check", "payload", `{"item":"mine"}`)
			if err := s.repo.EditAndRetry(t.Context(), id, []byte(`{"fail":"theirs"}`), inbox.EditOptions{}); err != nil {
				t.Fatal(err)
			}
			s.drain(t)
			late := s.post(t, path, "step", "save", "encoded", field(t, r.body, "encoded"), "was", field(t, r.body, "was"))
			if late.status != http.StatusConflict {
				t.Errorf("%d", late.status)
			}
			wants(t, late.body, "Somebody else", "mine")
			if got := s.detail(t, id); string(got.Payload) != `{"fail":"theirs"}` {
				t.Errorf("%q", got.Payload)
			}
		})
		t.Run("refuses a form that makes no sense", func(t *testing.T) {
			id := s.die(t, 1, "form", "")[0]
			path := fmt.Sprintf("messages/%d/edit", id)
			for _, fields := range [][]string{{"step", "jump"}, {"step", "save", "encoded", "*"}, {"step", "again", "encoded", "*"}} {
				if r := s.post(t, path, fields...); r.status != http.StatusBadRequest {
					t.Errorf("%v: %d", fields, r.status)
				}
			}
		})
	})
}

func TestRetryAll(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, db *bun.DB) {
		s := newSite(t, db, dashboard.Config{})
		ids := s.die(t, 40, "outage", "")
		other := s.die(t, 3, "other", "")
		path := "retry-all?error=outage"

		t.Run("counts first", func(t *testing.T) {
			wants(t, s.page(t, path), "40 <span>messages match", "Retry 40", `name="rate"`)
			wants(t, s.page(t, "retry-all?error=nothing"), "0 <span>messages match")
			wantsNot(t, s.page(t, "retry-all?error=nothing"), "<button")
		})
		t.Run("refuses a rate beyond the limit, and other messages than dead ones", func(t *testing.T) {
			for _, rate := range []string{"0", "-1", "501", "x"} {
				if r := s.post(t, path, "rate", rate); r.status != http.StatusBadRequest {
					t.Errorf("%s: %d", rate, r.status)
				}
			}
			if r := s.post(t, "retry-all?status=processed"); r.status != http.StatusBadRequest {
				t.Errorf("%d", r.status)
			}
		})
		t.Run("works in a job that goes on by itself, and shows how far it is", func(t *testing.T) {
			text := s.follow(t, path, "rate", "500")
			wants(t, text, "Retry all", "of 40 retried", "outage", "ann")
			eventually(t, "the job is done", func() bool { return strings.Contains(s.page(t, "jobs"), "badge good") })
			for _, id := range ids {
				if got := s.detail(t, id); got.Kind != inbox.Pending {
					t.Fatalf("%d: %v", id, got.Kind)
				}
			}
			if got := s.detail(t, other[0]); got.Kind != inbox.Dead || s.lastAct() != "retry-all by ann: 40" {
				t.Errorf("%v, %s", got.Kind, s.lastAct())
			}
			s.drain(t)
		})
	})
}

func TestJobs(t *testing.T) {
	t.Parallel()
	done := make(chan struct{})
	s := newSite(t, testdb.SQLite(t), dashboard.Config{RetryRate: 2, Done: done})
	s.die(t, 100, "slow", "")
	start := func(t *testing.T) string {
		t.Helper()
		r := s.post(t, "retry-all")
		if r.status != http.StatusSeeOther {
			t.Fatalf("%d\n%s", r.status, r.body)
		}
		return strings.TrimPrefix(r.header.Get("Location"), "./")
	}
	t.Run("can be stopped", func(t *testing.T) {
		path := start(t)
		wants(t, s.page(t, path), "running", "Stop")
		wants(t, s.follow(t, path+"/stop"), "told to stop")
		eventually(t, "the job has stopped", func() bool { return strings.Contains(s.page(t, path), "Stopped before the end") })
	})
	t.Run("are few at a time, and end with the program", func(t *testing.T) {
		var paths []string
		for range 4 {
			paths = append(paths, start(t))
		}
		if r := s.post(t, "retry-all"); r.status != http.StatusConflict {
			t.Errorf("the fifth: %d", r.status)
		}
		close(done)
		for _, path := range paths {
			eventually(t, "the job has stopped", func() bool { return strings.Contains(s.page(t, path), "Stopped before the end") })
		}
	})
}
