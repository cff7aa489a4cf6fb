package dashboard_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/letterbox-go/letterbox/dashboard"
	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

func TestRedact(t *testing.T) {
	t.Parallel()
	s := newSite(t, testdb.SQLite(t), dashboard.Config{Redact: func(m *inbox.Detail) {
		m.LastError = strings.ReplaceAll(m.LastError, "secret", "***")
		if m.Metadata["card"] != "" {
			m.Metadata["card"] = "***"
		}
		m.RawMetadata = ""
		for i := range m.History {
			m.History[i].Error = strings.ReplaceAll(m.History[i].Error, "secret", "***")
		}
		if m.Payload != nil {
			m.Payload = []byte(`{"item":"***"}`)
		}
		m.ID, m.Name = 7, "changed"
	}})
	id := s.accept(t, inbox.Entry{
		MessageID: "m", Message: order{Item: "secret", Fail: "secret failed"}, Metadata: map[string]string{"card": "secret"}, OrderingKey: "k",
	})[0]
	s.drain(t)
	path := fmt.Sprintf("messages/%d", id)

	t.Run("leaves nothing of it on any page or in the API", func(t *testing.T) {
		for _, route := range dashboard.Routes() {
			if route.Method == "GET" {
				r := s.get(t, strings.TrimSuffix(sample(route.Pattern, id), "?status=dead&error=e"))
				wantsNot(t, r.body, "secret", "changed</h1>")
			}
		}
		for _, r := range []reply{
			s.post(t, path+"/payload"), s.post(t, path+"/payload", "as", "file"), s.post(t, path+"/edit"), s.post(t, "api/"+path+"/payload"),
			s.post(t, path+"/edit", "step", "check", "payload", `{"item":"new"}`),
		} {
			wantsNot(t, r.body, "secret", "c2VjcmV0")
			if r.status != 200 {
				t.Errorf("%d\n%s", r.status, r.body)
			}
		}
	})
	t.Run("begins an edit with an empty form, so that the mask is not saved", func(t *testing.T) {
		text := s.post(t, path+"/edit").body
		wants(t, text, "the form begins empty")
		wantsNot(t, text, "***&#34;}</textarea>")
	})
	t.Run("does not touch what is stored", func(t *testing.T) {
		got := s.detail(t, id)
		if !strings.Contains(string(got.Payload), "secret") || got.Metadata["card"] != "secret" {
			t.Errorf("%q %v", got.Payload, got.Metadata)
		}
	})
}
