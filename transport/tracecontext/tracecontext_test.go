package tracecontext_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/letterbox-go/letterbox/transport/tracecontext"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestValid(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		parent: true,
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff": true,
		"cc" + parent[2:]:                 true,
		"cc" + parent[2:] + "-what-comes": true,
		"":                                false,
		parent[:54]:                       false,
		parent + "-x":                     false,
		"cc" + parent[2:] + "x":           false,
		"cc" + parent[2:] + "-\x00":       false,
		"cc" + parent[2:] + "-" + strings.Repeat("x", 300): false,
		"ff" + parent[2:]:                    false,
		"0x" + parent[2:]:                    false,
		strings.ToUpper(parent):              false,
		strings.Replace(parent, "-", "_", 1): false,
		"00-00000000000000000000000000000000-b7ad6b7169203331-01": false,
		"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01": false,
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0g": false,
	} {
		if got := tracecontext.Valid(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestValidState(t *testing.T) {
	t.Parallel()
	member := func(n int) string {
		var b strings.Builder
		for i := range n {
			b.WriteString("k" + strings.Repeat("a", i) + "=v,")
		}
		return b.String()
	}
	for text, want := range map[string]bool{
		"a=1":                             true,
		"a=1, b=2 ,\t,":                   true,
		"fw529a3039@dt=FfAAA":             true,
		"a_-*/9=!~ x":                     true,
		member(32):                        true,
		member(33):                        false,
		"":                                false,
		",":                               false,
		"a":                               false,
		"a=":                              false,
		"=1":                              false,
		"A=1":                             false,
		"1a=1":                            false,
		"1a@dt=1":                         true,
		"a@1t=1":                          false,
		"a@=1":                            false,
		"a=1,a=2":                         false,
		"a=1=2":                           false,
		"a=\x7f":                          false,
		"a=é":                             false,
		"a=" + strings.Repeat("x", 257):   false,
		strings.Repeat(" ", 5000) + "a=1": false,
	} {
		if got := tracecontext.ValidState(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestPut(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name          string
		metadata      map[string]string
		parent, state string
		want          map[string]string
	}{
		{"nothing makes no map", nil, "", "", nil},
		{"white space around it is not part of it", nil, " " + parent + "\t", " a=1 ", map[string]string{"traceparent": parent, "tracestate": "a=1"}},
		{"a malformed parent leaves all as it is", map[string]string{"tracestate": "old"}, "x", "a=1", map[string]string{"tracestate": "old"}},
		{"a malformed state goes alone", map[string]string{"k": "v"}, parent, "=", map[string]string{"k": "v", "traceparent": parent}},
		{"another parent takes its state with it", map[string]string{"traceparent": "old", "tracestate": "old"}, parent, "", map[string]string{"traceparent": parent}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, tracecontext.Put(test.metadata, test.parent, test.state)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFromContextOutsideTheInbox(t *testing.T) {
	t.Parallel()
	if parent, state, ok := tracecontext.FromContext(t.Context()); parent != "" || state != "" || ok {
		t.Error(parent, state, ok)
	}
}

func FuzzPut(f *testing.F) {
	f.Add(parent, "a=1,b@c=2")
	f.Add("cc"+parent[2:]+"-x", "=")
	f.Add("", "")
	f.Fuzz(func(t *testing.T, parent, state string) {
		metadata := tracecontext.Put(nil, parent, state)
		if metadata == nil {
			return
		}
		// What is kept is one line of ASCII, within bounds, and stays valid.
		for key, value := range metadata {
			if value == "" || len(value) > 4096 || strings.ContainsFunc(value, func(c rune) bool { return c > 0x7e || c < 0x20 && c != '\t' }) {
				t.Fatalf("%s: %q", key, value)
			}
		}
		if again := tracecontext.Put(nil, metadata["traceparent"], metadata["tracestate"]); !cmp.Equal(metadata, again) {
			t.Fatalf("%v became %v", metadata, again)
		}
	})
}
