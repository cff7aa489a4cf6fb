package inbox

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

type hostile func() string

func (h hostile) Error() string { return h() }

// storable is what every database takes.
func storable(text string) error {
	switch {
	case len(text) > maxErrorText:
		return fmt.Errorf("%d bytes", len(text))
	case !utf8.ValidString(text):
		return errors.New("not valid UTF-8")
	case strings.ContainsFunc(text, isControl):
		return errors.New("control characters")
	}
	return nil
}

func TestErrorTextIsAlwaysStorable(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"a plain text stays as it is":  {errors.New("unknown account é 🙂"), "unknown account é 🙂"},
		"control characters go":        {errors.New("a\x00b\r\nc\x7f"), "a b  c "},
		"invalid bytes are replaced":   {errors.New("a\xffb"), "a\uFFFDb"},
		"a panicking method is named":  {hostile(func() string { panic("no") }), "inbox.hostile: its Error method panicked"},
		"an empty text stays empty":    {errors.New(""), ""},
		"a panic is named in a chain":  {errors.Join(errors.New("x"), hostile(func() string { panic("no") })), "*errors.joinError: its Error method panicked"},
		"a long text is cut":           {errors.New(strings.Repeat("a", 5<<20)), strings.Repeat("a", maxErrorText)},
		"no character is cut in two":   {errors.New("a" + strings.Repeat("é", maxErrorText)), "a" + strings.Repeat("é", (maxErrorText-1)/2)},
		"replacement does not outgrow": {errors.New(strings.Repeat("\xffa", maxErrorText)), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := errorText(c.err)
			if err := storable(got); err != nil {
				t.Errorf("%.60q: %v", got, err)
			}
			if c.want != "" && got != c.want {
				t.Errorf("%.60q, want %.60q", got, c.want)
			}
		})
	}
}

func TestADescriptionIsNeverEmpty(t *testing.T) {
	t.Parallel()
	p := &Processor{}
	if got, want := p.describe(hostile(func() string { return "" })), "inbox.hostile without a text"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func FuzzErrorText(f *testing.F) {
	for _, seed := range []string{"", "boom", "a\x00b", "\xff\xfe", "é\u0085", strings.Repeat("\xc3", maxErrorText+1), strings.Repeat("🙂", maxErrorText/4+1), strings.Repeat("a", maxErrorText-1) + "é"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := errorText(errors.New(text))
		if err := storable(got); err != nil {
			t.Errorf("%q became %q: %v", text, got, err)
		}
		if storable(text) == nil && got != text {
			t.Errorf("%q was changed to %q", text, got)
		}
		if again := cleanText(got); again != got {
			t.Errorf("%q is not stable: %q", got, again)
		}
	})
}
