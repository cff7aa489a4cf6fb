package httpinbox_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/transport/httpinbox"
)

const cloudEventsJSON = "Content-Type: application/cloudevents+json"

// binary returns the header of an event, with fields replaced, added, or, by an
// empty value, left out.
func binary(changes ...string) []string {
	fields := map[string]string{"Ce-Specversion": "1.0", "Ce-Id": "1", "Ce-Source": "/shop", "Ce-Type": "credited"}
	for _, change := range changes {
		name, value, _ := strings.Cut(change, ": ")
		fields[name] = value
	}
	var header []string
	for name, value := range fields {
		if value != "" {
			header = append(header, name+": "+value)
		}
	}
	return header
}

func TestCloudEventsAreStored(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		body     string
		header   []string
		source   string
		id       string
		payload  string
		metadata map[string]string
	}{
		{
			"binary mode", good, binary("Ce-Subject: a%20b", "Ce-Time: 2026-01-02T03:04:05Z"), "/shop", "1", good,
			map[string]string{"ce-specversion": "1.0", "ce-type": "credited", "ce-subject": "a b", "ce-time": "2026-01-02T03:04:05Z"},
		},
		{"an encoded id", good, binary("Ce-Id: %C3%A9%22%25"), "/shop", `é"%`, good, nil},
		{"a quoted id", good, binary(`Ce-Id: "a \"b\""`), "/shop", `a "b"`, good, nil},
		{
			"structured mode", `{"specversion":"1.0", "id":"\u00e9","source":"/s","type":"t","data": {"account":"\u0061", "cents":1} ,"n":5,"b":true,"gone":null}`,
			[]string{cloudEventsJSON},
			"/s", "é", `{"account":"\u0061", "cents":1}`,
			map[string]string{"ce-specversion": "1.0", "ce-type": "t", "ce-n": "5", "ce-b": "true"},
		},
		{
			"structured mode with base64", `{"specversion":"1.0","id":"1","source":"/s","type":"t","datacontenttype":"application/json","data_base64":"eyJhY2NvdW50IjoiYSJ9"}`,
			[]string{cloudEventsJSON + "; charset=utf-8"},
			"/s", "1", `{"account":"a"}`, nil,
		},
		{
			"trace context as an extension", good, binary("Ce-Traceparent: "+traceparent, "Ce-Tracestate: "+tracestate), "/shop", "1", good,
			map[string]string{"ce-specversion": "1.0", "ce-type": "credited", "ce-traceparent": traceparent, "ce-tracestate": tracestate, "traceparent": traceparent, "tracestate": tracestate},
		},
		{
			"trace context of the request before that of the event", good,
			append(binary("Ce-Traceparent: "+traceparent, "Ce-Tracestate: "+tracestate), "Traceparent: "+strings.ReplaceAll(traceparent, "-01", "-00")), "/shop", "1", good,
			map[string]string{"ce-specversion": "1.0", "ce-type": "credited", "ce-traceparent": traceparent, "ce-tracestate": tracestate, "traceparent": strings.ReplaceAll(traceparent, "-01", "-00")},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, testdb.SQLite(t))
			route(t, e, "/events", httpinbox.Config[Credit]{Identify: httpinbox.CloudEvents(httpinbox.CloudEventsConfig{})})
			e.post(t, "/events", test.body, test.header...).expectOutcome(t, inbox.Stored)
			row := e.one(t)
			if row.Source != test.source || row.MessageID != test.id || string(row.Payload) != test.payload {
				t.Errorf("stored %q", row)
			}
			if test.metadata != nil {
				var metadata map[string]string
				if err := json.Unmarshal([]byte(row.Metadata), &metadata); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(test.metadata, metadata); diff != "" {
					t.Error(diff)
				}
			}
			e.post(t, "/events", test.body, test.header...).expectOutcome(t, inbox.Duplicate)
		})
	}
}

func TestOneEventInBothModesIsOneMessage(t *testing.T) {
	t.Parallel()
	e := newEnv(t, testdb.SQLite(t))
	route(t, e, "/events", httpinbox.Config[Credit]{Identify: httpinbox.CloudEvents(httpinbox.CloudEventsConfig{})})
	e.post(t, "/events", good, binary()...).expectOutcome(t, inbox.Stored)
	e.post(t, "/events", `{"specversion":"1.0","id":"1","source":"/shop","type":"credited","data":`+good+`}`, cloudEventsJSON).expectOutcome(t, inbox.Duplicate)
	e.post(t, "/events", good, binary("Ce-Source: /other")...).expectOutcome(t, inbox.Stored)
	e.post(t, "/events", good+" ", binary()...).expectOutcome(t, inbox.Mismatch)
	if n := len(e.rows(t)); n != 2 {
		t.Errorf("%d rows", n)
	}
}

func TestTheTypeOfAnEventChoosesItsName(t *testing.T) {
	t.Parallel()
	e := newEnv(t, testdb.SQLite(t))
	route(t, e, "/events", httpinbox.Config[any]{Identify: httpinbox.CloudEvents(httpinbox.CloudEventsConfig{
		Names: map[string]string{"credited": "credit", "counted": "amount"},
	})})
	e.post(t, "/events", good, binary()...).expectOutcome(t, inbox.Stored)
	e.post(t, "/events", "5", binary("Ce-Type: counted")...).expectOutcome(t, inbox.Stored)
	e.post(t, "/events", good, binary("Ce-Type: counted", "Ce-Id: 2")...).expect(t, 422, "wrong_shape")
	e.post(t, "/events", `{"cents":1}`, binary("Ce-Id: 3")...).expect(t, 422, "wrong_shape")
	e.post(t, "/events", good, binary("Ce-Type: removed")...).expect(t, 422, "unknown_type")
	var names []string
	for _, row := range e.rows(t) {
		names = append(names, row.Name)
	}
	if diff := cmp.Diff([]string{"credit", "amount"}, names); diff != "" {
		t.Error(diff)
	}
}

func TestWhatIsNoCloudEventIsRefused(t *testing.T) {
	t.Parallel()
	const required = `"specversion":"1.0","id":"1","source":"/s","type":"t"`
	e := newEnv(t, testdb.SQLite(t))
	route(t, e, "/events", httpinbox.Config[Credit]{Identify: httpinbox.CloudEvents(httpinbox.CloudEventsConfig{})})
	for _, test := range []struct {
		name   string
		body   string
		header []string
		status int
		code   string
	}{
		{"no version", good, binary("Ce-Specversion: "), 400, "cloudevent_invalid"},
		{"another version", good, binary("Ce-Specversion: 0.3"), 400, "cloudevent_invalid"},
		{"no id", good, binary("Ce-Id: "), 400, "message_id_missing"},
		{"no source", good, binary("Ce-Source: "), 400, "cloudevent_invalid"},
		{"no type", good, binary("Ce-Type: "), 400, "cloudevent_invalid"},
		{"two ids", good, append(binary(), "Ce-Id: 2"), 400, "cloudevent_invalid"},
		{"a percent sign that begins no code", good, binary("Ce-Id: 100%"), 400, "cloudevent_invalid"},
		{"a code that is not UTF-8", good, binary("Ce-Id: %ff"), 400, "cloudevent_invalid"},
		{"a control character", good, binary("Ce-Id: a%00b"), 400, "message_id_invalid"},
		{"a source of 300 bytes", good, binary("Ce-Source: /" + strings.Repeat("s", 300)), 400, "entry_invalid"},
		{"more metadata than can be stored", good, binary("Ce-Subject: "+strings.Repeat("s", 40<<10), "Ce-X: "+strings.Repeat("s", 40<<10)), 400, "entry_invalid"},
		{"an attribute name with a dash", good, binary("Ce-A-B: 1"), 400, "cloudevent_invalid"},
		{"a batch", `[]`, []string{"Content-Type: application/cloudevents-batch+json"}, 415, "unsupported_media_type"},
		{"an unknown format", ``, []string{"Content-Type: application/cloudevents+avro"}, 415, "unsupported_media_type"},
		{"structured, no JSON", `{`, []string{cloudEventsJSON}, 400, "cloudevent_invalid"},
		{"structured, an array", `[]`, []string{cloudEventsJSON}, 400, "cloudevent_invalid"},
		{"structured, no id", strings.Replace("{"+required+"}", `"id":"1",`, "", 1), []string{cloudEventsJSON}, 400, "message_id_missing"},
		{"structured, a null id", strings.Replace("{"+required+"}", `"id":"1",`, `"id":null,`, 1), []string{cloudEventsJSON}, 400, "message_id_missing"},
		{"structured, two ids", "{" + required + `,"id":"2"}`, []string{cloudEventsJSON}, 400, "cloudevent_invalid"},
		{"structured, two ids by an escape", "{" + required + `,"\u0069d":"2"}`, []string{cloudEventsJSON}, 400, "cloudevent_invalid"},
		{"structured, an id in capitals", strings.Replace("{"+required+"}", `"id"`, `"ID"`, 1), []string{cloudEventsJSON}, 400, "cloudevent_invalid"},
		{"structured, an id that is half a character", strings.Replace("{"+required+"}", `"id":"1"`, `"id":"\ud800"`, 1), []string{cloudEventsJSON}, 400, "cloudevent_invalid"},
		{"structured, bytes that are not UTF-8", "{" + required + ",\"x\":\"\xff\"}", []string{cloudEventsJSON}, 400, "cloudevent_invalid"},
		{"structured, an attribute that is an object", "{" + required + `,"x":{}}`, []string{cloudEventsJSON}, 400, "cloudevent_invalid"},
		{"structured, data twice", "{" + required + `,"data":1,"data_base64":"MQ=="}`, []string{cloudEventsJSON}, 400, "cloudevent_invalid"},
		{"structured, no base64", "{" + required + `,"data_base64":"!"}`, []string{cloudEventsJSON}, 400, "cloudevent_invalid"},
		{"structured, data of another media type", "{" + required + `,"datacontenttype":"text/plain","data":"x"}`, []string{cloudEventsJSON}, 415, "unsupported_media_type"},
		{"structured, no data", "{" + required + "}", []string{cloudEventsJSON}, 400, "malformed_json"},
		{"structured, data of another shape", "{" + required + `,"data":[]}`, []string{cloudEventsJSON}, 422, "wrong_shape"},
		{"structured, data in base64 that is not JSON", "{" + required + `,"data_base64":"ew=="}`, []string{cloudEventsJSON}, 400, "malformed_json"},
	} {
		t.Run(test.name, func(t *testing.T) {
			e.post(t, "/events", test.body, test.header...).expect(t, test.status, test.code)
			if rows := e.rows(t); len(rows) > 0 {
				t.Fatalf("stored: %q", rows)
			}
		})
	}
}
