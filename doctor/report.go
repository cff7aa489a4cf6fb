package doctor

import (
	"fmt"
	"time"
)

// Severity says how much a finding matters.
type Severity uint8

const (
	// Info is worth knowing, and needs no action.
	Info Severity = iota + 1
	// Warning: something is slow or stuck, or will be.
	Warning
	// Critical: messages are not processed, or a guarantee does not hold.
	Critical
)

// String returns "info", "warning" or "critical".
func (s Severity) String() string {
	switch s {
	case Info:
		return "info"
	case Warning:
		return "warning"
	case Critical:
		return "critical"
	}
	return fmt.Sprintf("Severity(%d)", uint8(s))
}

// MarshalText writes the severity as String does.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (s *Severity) UnmarshalText(text []byte) error {
	for _, known := range []Severity{Info, Warning, Critical} {
		if known.String() == string(text) {
			*s = known
			return nil
		}
	}
	return fmt.Errorf("doctor: unknown severity %q", text)
}

// Finding is one thing that was found.
type Finding struct {
	// ID tells the kinds of findings apart ("old-snapshot"); it does not change
	// between releases. docs/doctor.md has a section for each.
	ID       string   `json:"id"`
	Severity Severity `json:"severity"`
	// Title is one sentence.
	Title string `json:"title"`
	// Evidence are the facts, one a line. They may contain text that came with
	// messages: names, keys, errors. Escape them where they are shown.
	Evidence []string `json:"evidence,omitempty"`
	// Remedy says what to do. Empty where nothing has to be done.
	Remedy string `json:"remedy,omitempty"`
}

// Report is what an examination found.
type Report struct {
	// Findings begin with the most severe.
	Findings []Finding `json:"findings"`
	// Database is the product and its version.
	Database string `json:"database"`
	// ExaminedAt is the time by the application's clock.
	ExaminedAt time.Time `json:"examined_at"`
}

// Worst is the highest severity among the findings, or 0 if there are none.
func (r Report) Worst() Severity {
	var worst Severity
	for _, f := range r.Findings {
		worst = max(worst, f.Severity)
	}
	return worst
}
