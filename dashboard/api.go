package dashboard

import (
	"net/http"
	"strconv"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
)

const (
	apiDeadErrorsMost = 200
	apiParkedKeysMost = 100
)

func (d *dashboard) apiStats(w http.ResponseWriter, r *http.Request, _ visitor) error {
	stats, err := d.repo.Stats(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, newAPIStats(stats))
}

func (d *dashboard) apiMinutes(w http.ResponseWriter, r *http.Request, _ visitor) error {
	minutes, err := d.repo.Minutes(r.Context(), time.Hour)
	if err != nil {
		return err
	}
	list := make([]apiMinute, len(minutes))
	for i, m := range minutes {
		list[i] = apiMinute(m)
	}
	return writeJSON(w, http.StatusOK, list)
}

func (d *dashboard) apiProcessors(w http.ResponseWriter, r *http.Request, _ visitor) error {
	processors, err := d.repo.Processors(r.Context())
	if err != nil {
		return err
	}
	list := make([]apiProcessor, len(processors))
	for i, p := range processors {
		list[i] = apiProcessor{p.ID, p.Host, p.PID, p.Workers, notNil(p.Names), p.Alive, p.StartedAt, p.SeenAt, p.CautiousUntil}
	}
	return writeJSON(w, http.StatusOK, list)
}

func (d *dashboard) apiMessages(w http.ResponseWriter, r *http.Request, _ visitor) error {
	query := r.URL.Query()
	form, err := parseFilter(query)
	if err != nil {
		return err
	}
	place, err := parsePlace(query.Get("from"))
	if err != nil {
		return err
	}
	limit := d.config.PageSize
	if text := query.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > 1000 {
			return &refusal{http.StatusBadRequest, "The limit must be between 1 and 1000."}
		}
	}
	messages, next, err := d.repo.List(r.Context(), form.Filter, inbox.Page{Before: place, Limit: limit})
	if err != nil {
		return err
	}
	list := apiList{Messages: []apiSummary{}, Next: next}
	for _, m := range d.redactSummaries(messages) {
		list.Messages = append(list.Messages, newAPISummary(m))
	}
	return writeJSON(w, http.StatusOK, list)
}

func (d *dashboard) apiMessage(w http.ResponseWriter, r *http.Request, _ visitor) error {
	view, _, err := d.messageView(r)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, newAPIDetail(view))
}

func (d *dashboard) apiPayload(w http.ResponseWriter, r *http.Request, v visitor) error {
	view, whole, err := d.messageView(r)
	if err != nil {
		return err
	}
	if view.Payload == nil {
		return &refusal{http.StatusNotFound, "There is no payload to show: it was removed, never stored, or is withheld here."}
	}
	d.logLook(r, v, &view)
	return writeJSON(w, http.StatusOK, apiPayload{Payload: view.Payload, Redacted: !whole})
}

func (d *dashboard) apiDeadErrors(w http.ResponseWriter, r *http.Request, _ visitor) error {
	groups, err := d.repo.DeadErrors(r.Context(), apiDeadErrorsMost)
	if err != nil {
		return err
	}
	list := make([]apiDeadError, len(groups))
	for i, g := range groups {
		g.Error = d.group(g).Error
		list[i] = apiDeadError(g)
	}
	return writeJSON(w, http.StatusOK, list)
}

func (d *dashboard) apiParkedKeys(w http.ResponseWriter, r *http.Request, _ visitor) error {
	keys, err := d.repo.ParkedKeys(r.Context(), apiParkedKeysMost)
	if err != nil {
		return err
	}
	list := make([]apiParkedKey, len(keys))
	for i, k := range d.redactKeys(keys) {
		list[i] = apiParkedKey{k.Key, k.ID, k.Source, k.MessageID, k.Name, k.LastError, k.Since, k.Dead, k.Waiting}
	}
	return writeJSON(w, http.StatusOK, list)
}

func (d *dashboard) apiPaused(w http.ResponseWriter, r *http.Request, _ visitor) error {
	paused, err := d.repo.Paused(r.Context())
	if err != nil {
		return err
	}
	list := make([]apiPausedName, len(paused))
	for i, p := range paused {
		list[i] = apiPausedName(p)
	}
	return writeJSON(w, http.StatusOK, list)
}

func (d *dashboard) apiJobs(w http.ResponseWriter, _ *http.Request, _ visitor) error {
	list := []apiJobStatus{}
	for _, status := range d.jobs.list() {
		list = append(list, newAPIJob(status))
	}
	return writeJSON(w, http.StatusOK, list)
}

func (d *dashboard) apiJob(w http.ResponseWriter, r *http.Request, _ visitor) error {
	job, err := d.findJob(r)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, newAPIJob(job.now()))
}

func (d *dashboard) apiDoctor(w http.ResponseWriter, r *http.Request, _ visitor) error {
	report, err := d.examine(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, report)
}
