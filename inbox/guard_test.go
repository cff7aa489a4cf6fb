package inbox

import (
	"errors"
	"testing"
)

// A nested transaction that is left open is rolled back by database/sql when the
// handler's context ends, perhaps while the guard shuts: the verdict names the
// nested transaction then, and a statement only if one was running before.
func TestVerdictOfWhatIsLeftOpen(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		left, stray bool
		open, want  error
	}{
		"nothing":                           {},
		"nested":                            {left: true, want: errNestedOpen},
		"nested, while it is rolled back":   {left: true, open: errStillRunning, want: errNestedOpen},
		"a statement":                       {stray: true, open: errStillRunning, want: errStillRunning},
		"a statement that began afterwards": {open: errStillRunning, want: errStillRunning},
		"nested and a statement":            {left: true, stray: true, open: errStillRunning, want: errStillRunning},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGuard(&database{}, nil, t.Context())
			g.nested.left, g.stray = test.left, test.stray
			if got := g.verdict(nil, test.open); !errors.Is(got, test.want) {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}
