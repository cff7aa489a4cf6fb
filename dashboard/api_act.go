package dashboard

import (
	"context"
	"net/http"

	"github.com/letterbox-go/letterbox/inbox"
)

// acted is the answer to a verb that has nothing else to say.
type acted struct {
	Done bool `json:"done"`
}

func (d *dashboard) apiRetry(w http.ResponseWriter, r *http.Request, _ visitor) error {
	return apiOn(w, r, d.repo.Retry)
}

func (d *dashboard) apiDiscard(w http.ResponseWriter, r *http.Request, _ visitor) error {
	return apiOn(w, r, d.repo.Discard)
}

func apiOn(w http.ResponseWriter, r *http.Request, verb func(ctx context.Context, id int64) error) error {
	if _, err := on(r, verb); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, acted{true})
}

func (d *dashboard) apiEdit(w http.ResponseWriter, r *http.Request, v visitor) error {
	var order struct {
		Payload []byte `json:"payload"`
		Force   bool   `json:"force"`
	}
	if err := readJSON(r, &order); err != nil {
		return err
	}
	if order.Payload == nil {
		return &refusal{http.StatusBadRequest, "The payload is missing: send it in base64, an empty one as \"\"."}
	}
	return apiOn(w, r, func(ctx context.Context, id int64) error {
		return d.repo.EditAndRetry(ctx, id, order.Payload, inbox.EditOptions{Force: order.Force})
	})
}

func (d *dashboard) apiSkip(w http.ResponseWriter, r *http.Request, _ visitor) error {
	var order struct {
		Key string `json:"key"`
	}
	if err := readJSON(r, &order); err != nil {
		return err
	}
	skipped, err := d.skipKey(r.Context(), order.Key)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, struct {
		Skipped int64 `json:"skipped"`
	}{skipped})
}

func (d *dashboard) apiPause(w http.ResponseWriter, r *http.Request, _ visitor) error {
	return d.apiSetPaused(w, r, d.repo.Pause)
}

func (d *dashboard) apiResume(w http.ResponseWriter, r *http.Request, _ visitor) error {
	return d.apiSetPaused(w, r, d.repo.Resume)
}

func (d *dashboard) apiSetPaused(w http.ResponseWriter, r *http.Request, set func(ctx context.Context, name string) error) error {
	var order struct {
		Name string `json:"name"`
	}
	if err := readJSON(r, &order); err != nil {
		return err
	}
	if err := d.setPaused(r.Context(), order.Name, set); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, acted{true})
}

// apiRetryAll takes its filter from the query, as the list does.
func (d *dashboard) apiRetryAll(w http.ResponseWriter, r *http.Request, v visitor) error {
	form, err := deadFilter(r)
	if err != nil {
		return err
	}
	order := struct {
		DryRun    bool  `json:"dry_run"`
		PerSecond int   `json:"per_second"`
		Limit     int64 `json:"limit"`
	}{PerSecond: d.config.RetryRate}
	if err := readJSON(r, &order); err != nil {
		return err
	}
	if order.PerSecond < 1 || order.PerSecond > d.config.RetryRate || order.Limit < 0 {
		return &refusal{http.StatusBadRequest, "per_second must be between 1 and " + number(int64(d.config.RetryRate)) + ", limit not negative."}
	}
	if order.DryRun {
		count, err := d.countDead(r.Context(), form)
		if err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, struct {
			Count int64 `json:"count"`
		}{count})
	}
	status, err := d.startJob(r.Context(), v, form, order.PerSecond, order.Limit)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusAccepted, newAPIJob(status))
}

func (d *dashboard) apiStopJob(w http.ResponseWriter, r *http.Request, v visitor) error {
	job, err := d.findJob(r)
	if err != nil {
		return err
	}
	d.stop(r, v, job)
	return writeJSON(w, http.StatusOK, acted{true})
}
