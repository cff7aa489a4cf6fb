package dashboard_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/letterbox-go/letterbox/dashboard"
	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

// schema is an object of the description. What a property refers to is "" for
// plain values.
type schema struct {
	required   []string
	properties map[string]string
}

var reference = regexp.MustCompile(`#/components/schemas/(\w+)`)

// schemas reads the objects of the description: one property a line, as it is
// laid out.
func schemas(text string) map[string]schema {
	all := map[string]schema{}
	_, text, _ = strings.Cut(text, "\n  schemas:\n")
	name := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch {
		case strings.HasPrefix(line, "        "):
			refers := ""
			if match := reference.FindStringSubmatch(value); match != nil {
				refers = match[1]
			}
			all[name].properties[key] = refers
		case strings.HasPrefix(line, "      required: "):
			object := all[name]
			object.required = strings.Split(strings.Trim(value, " []"), ", ")
			all[name] = object
		case strings.HasPrefix(line, "    ") && line[4] != ' ':
			name = key
			all[name] = schema{properties: map[string]string{}}
		}
	}
	return all
}

// fits says what in a value is not as its schema says.
func fits(all map[string]schema, name string, value any) error {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			if err := fits(all, name, element); err != nil {
				return err
			}
		}
	case map[string]any:
		object, known := all[name]
		if !known {
			return nil // a map of plain values
		}
		for _, key := range object.required {
			if _, there := value[key]; !there {
				return fmt.Errorf("%s: no %q", name, key)
			}
		}
		for key, v := range value {
			refers, described := object.properties[key]
			if !described {
				return fmt.Errorf("%s: %q is not described", name, key)
			}
			if inner, isMap := v.(map[string]any); isMap && refers != "" && slices.Contains([]string{"names", "sources"}, key) {
				for _, v := range inner {
					if err := fits(all, refers, v); err != nil {
						return err
					}
				}
				continue
			}
			if err := fits(all, refers, v); err != nil {
				return err
			}
		}
	}
	return nil
}

func TestAnswersAreAsDescribed(t *testing.T) {
	t.Parallel()
	s := newSite(t, testdb.SQLite(t), dashboard.Config{TraceURL: "/t/{trace}"})
	dead := s.die(t, 3, "broken", "k")[0]
	s.accept(t, inbox.Entry{MessageID: "m", Message: order{}, Metadata: map[string]string{"a": "b"}})
	s.drain(t)
	if err := s.repo.Pause(t.Context(), "order"); err != nil {
		t.Fatal(err)
	}
	var job struct{ ID string }
	s.api(t, "POST", "api/retry-all?error=none", "", &job)
	all := schemas(string(dashboard.Description))
	if len(all) < 20 {
		t.Fatalf("only %d schemas: is the file laid out in another way?", len(all))
	}
	for _, want := range []struct{ method, path, body, schema string }{
		{"GET", "stats", "", "Stats"},
		{"GET", "minutes", "", "Minute"},
		{"GET", "processors", "", "Processor"},
		{"GET", "messages?limit=2", "", "List"},
		{"GET", fmt.Sprintf("messages/%d", dead), "", "Detail"},
		{"GET", fmt.Sprintf("messages/%d", dead+1), "", "Detail"},
		{"POST", fmt.Sprintf("messages/%d/payload", dead), "", "Payload"},
		{"GET", "dead-errors", "", "DeadError"},
		{"GET", "parked-keys", "", "ParkedKey"},
		{"GET", "names/paused", "", "PausedName"},
		{"GET", "jobs", "", "Job"},
		{"GET", "jobs/" + job.ID, "", "Job"},
		{"GET", "doctor", "", "Report"},
		{"POST", "retry-all", `{"dry_run":true}`, "Counted"},
		{"POST", "keys/skip", `{"key":"k"}`, "Skipped"},
		{"POST", "names/resume", `{"name":"order"}`, "Acted"},
		{"GET", "nowhere", "", "Problem"},
	} {
		header := http.Header{"Content-Type": {"application/json"}}
		r := s.send(t, "ann", want.method, "api/"+want.path, header, want.body)
		var value any
		if err := json.Unmarshal([]byte(r.body), &value); err != nil {
			t.Fatalf("%s: %v\n%s", want.path, err, r.body)
		}
		if err := fits(all, want.schema, value); err != nil {
			t.Errorf("%s: %v\n%s", want.path, err, r.body)
		}
	}
}
