package httpinbox

import (
	"net/http"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
)

// HealthAnswer is what the routes of Livez and Readyz show.
type HealthAnswer struct {
	// Status is "ok" or "unavailable".
	Status string `json:"status"`
	// Problems say why it is not ok. They hold nothing of a database's error.
	Problems []string `json:"problems,omitempty"`
	// LastPoll is when the processor last looked for messages; absent without one.
	LastPoll *time.Time `json:"last_poll,omitempty"`
	// OldestDueSeconds is how long the oldest due message has been waiting.
	OldestDueSeconds float64 `json:"oldest_due_seconds"`
}

// Livez returns a handler for a liveness probe: 200 while a restart would not
// help, else 503. A database that is away is no reason for a restart.
func Livez(health *inbox.Health) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isRead(w, r) {
			return
		}
		answer, status := HealthAnswer{Status: "ok"}, http.StatusOK
		if !health.Live(r.Context()) {
			answer, status = healthAnswer(health.Check(r.Context())), http.StatusServiceUnavailable
		}
		writeJSON(w, status, "application/json", answer)
	})
}

// Readyz returns a handler for a readiness probe: 200 while the process can
// store messages and, where it should, process them; else 503 with the problems.
// It needs no authentication, and neither shows a message nor says what the
// database's error was.
func Readyz(health *inbox.Health) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isRead(w, r) {
			return
		}
		report := health.Check(r.Context())
		status := http.StatusOK
		if !report.Ready {
			status = http.StatusServiceUnavailable
		}
		writeJSON(w, status, "application/json", healthAnswer(report))
	})
}

func healthAnswer(report inbox.HealthReport) HealthAnswer {
	answer := HealthAnswer{Status: "ok", Problems: report.Problems, OldestDueSeconds: report.OldestDue.Seconds()}
	if !report.Ready {
		answer.Status = "unavailable"
	}
	if !report.LastPoll.IsZero() {
		at := report.LastPoll.UTC()
		answer.LastPoll = &at
	}
	return answer
}

// isRead refuses methods that probes do not use.
func isRead(w http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return true
	}
	problem(http.StatusMethodNotAllowed, codeMethod, "only GET is allowed here").with("Allow", "GET, HEAD").write(w)
	return false
}
