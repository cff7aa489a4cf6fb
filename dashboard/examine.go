package dashboard

import (
	"context"
	"net/http"
	"time"

	"github.com/letterbox-go/letterbox/doctor"
)

// doctorTimeout is how long an examination may take as a whole.
const doctorTimeout = time.Minute

// quotesErrors are the findings whose evidence holds errors of handlers.
var quotesErrors = map[string]bool{"dead-messages": true, "parked-keys": true}

// doctorView is a report, sorted by severity.
type doctorView struct {
	doctor.Report
	Took time.Duration
}

func (d *dashboard) doctor(w http.ResponseWriter, r *http.Request, v visitor) error {
	began := time.Now()
	report, err := d.examine(r.Context())
	if err != nil {
		return err
	}
	return d.show(w, r, v, http.StatusOK, page{View: "doctor", Title: "Doctor", Section: "doctor", Body: doctorView{report, time.Since(began)}})
}

// examine leaves the evidence with errors of handlers out where they are
// redacted: a report does not say which message they belong to.
func (d *dashboard) examine(ctx context.Context) (doctor.Report, error) {
	report, err := doctor.Examine(ctx, d.repo, d.config.Doctor)
	if err != nil || d.config.Redact == nil {
		return report, err
	}
	for i := range report.Findings {
		if f := &report.Findings[i]; quotesErrors[f.ID] {
			f.Evidence = nil
		}
	}
	return report, nil
}
