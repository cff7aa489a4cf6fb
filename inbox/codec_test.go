package inbox_test

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"testing"

	"github.com/letterbox-go/letterbox/inbox"
)

type loose struct {
	Any   any            `json:"any"`
	Map   map[string]any `json:"map,omitempty"`
	Float float64        `json:"float"`
	Int   int64          `json:"int"`
	Bytes []byte         `json:"bytes,omitempty"`
}

func looseNames() *inbox.NameMap {
	names := inbox.NewNameMap()
	inbox.Register[loose](names, "loose")
	return names
}

func TestJSONCodec(t *testing.T) {
	t.Parallel()
	names := looseNames()

	t.Run("numbers of type any keep their digits", func(t *testing.T) {
		t.Parallel()
		got, err := names.Decode("loose", []byte(`{"any":9007199254740993,"map":{"n":[1.10,1e400,-0]},"int":9223372036854775807}`))
		if err != nil {
			t.Fatal(err)
		}
		want := loose{
			Any: json.Number("9007199254740993"),
			Map: map[string]any{"n": []any{json.Number("1.10"), json.Number("1e400"), json.Number("-0")}},
			Int: math.MaxInt64,
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("decoded %#v, want %#v", got, want)
		}
	})

	for name, payload := range map[string]string{
		"nothing":                    "",
		"white space":                " \n",
		"half a value":               `{"any":`,
		"bytes after the value":      `{} x`,
		"a second value":             `{} {}`,
		"a closing bracket":          `{}]`,
		"a NUL after the value":      "{}\x00",
		"a byte order mark":          "\ufeff{}",
		"a string for a number":      `{"int":"1"}`,
		"a fraction for an integer":  `{"int":1.5}`,
		"a number out of range":      `{"int":9223372036854775808}`,
		"a float out of range":       `{"float":1e400}`,
		"an array for an object":     `[]`,
		"a number for an object":     `0`,
		"bytes that are no base64":   `{"bytes":"%"}`,
		"another encoding than JSON": "\x0a\x05hello",
	} {
		t.Run(name+" is an error", func(t *testing.T) {
			t.Parallel()
			if got, err := names.Decode("loose", []byte(payload)); err == nil {
				t.Errorf("decoded %#v", got)
			}
		})
	}

	t.Run("white space around the value is none", func(t *testing.T) {
		t.Parallel()
		if _, err := names.Decode("loose", []byte(" \r\n\t{} \r\n\t")); err != nil {
			t.Error(err)
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{`{}`, `{"any":9007199254740993}`, `{"map":{"a":[null,true,"\ud800"]}}`, `{"bytes":"AAEC"}`, `{"float":1e308}`, "{} {}", "\xff"} {
		f.Add([]byte(seed))
	}
	names := looseNames()
	f.Fuzz(func(t *testing.T, payload []byte) {
		given := bytes.Clone(payload)
		first, err := names.Decode("loose", payload)
		if !bytes.Equal(payload, given) {
			t.Fatal("decoding changed the payload")
		}
		if err != nil {
			return
		}
		if !json.Valid(payload) {
			t.Fatalf("decoded what is no JSON: %q", payload)
		}
		again, err := json.Marshal(first)
		if err != nil {
			t.Fatalf("what was decoded cannot be encoded: %v", err)
		}
		second, err := names.Decode("loose", again)
		if err != nil {
			t.Fatal(err)
		}
		// Compared as JSON: empty and absent maps are the same there.
		if text, err := json.Marshal(second); err != nil || !bytes.Equal(text, again) {
			t.Errorf("%s became %s (%v)", again, text, err)
		}
	})
}
