package dashboard

import "fmt"

// Level is what a visitor may do.
type Level uint8

const (
	// None: nothing.
	None Level = iota
	// ReadOnly: see all pages, payloads after redaction included.
	ReadOnly
	// Operator: retry, edit, discard, skip, pause and resume as well.
	Operator
)

// String returns "none", "read-only" or "operator".
func (l Level) String() string {
	switch l {
	case None:
		return "none"
	case ReadOnly:
		return "read-only"
	case Operator:
		return "operator"
	}
	return fmt.Sprintf("Level(%d)", uint8(l))
}
