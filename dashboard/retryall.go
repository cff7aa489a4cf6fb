package dashboard

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/letterbox-go/letterbox/inbox"
)

// askRetryAll counts what would be retried, and changes nothing.
func (d *dashboard) askRetryAll(w http.ResponseWriter, r *http.Request, v visitor) error {
	form, err := deadFilter(r)
	if err != nil {
		return err
	}
	count, err := d.countDead(r.Context(), form)
	if err != nil {
		return err
	}
	q := question{
		Heading: "Retry all of these dead messages?",
		Text: []string{
			"They run again beside what arrives meanwhile, the oldest first, each beginning with no attempts. If the reason they died is still there, they will die again.",
			"Messages whose payload was removed are left out.",
		},
		Facts: form.Words(), Button: "Retry " + number(count), Back: "dead",
		Rate: d.config.RetryRate, Count: count, Counted: true,
	}
	if len(q.Facts) == 0 {
		q.Facts = []fact{{"Which", "All dead messages"}}
	}
	if count == 0 {
		q.Button = ""
	}
	return d.ask(w, r, v, "dead", q)
}

// deadFilter reads a filter that only dead messages match.
func deadFilter(r *http.Request) (filterForm, error) {
	form, err := parseFilter(r.URL.Query())
	if err != nil {
		return form, err
	}
	if form.Status != "" && form.Status != "dead" {
		return form, &refusal{http.StatusBadRequest, "Only dead messages can be retried all at once."}
	}
	form.Status, form.Filter.Status = "dead", inbox.Dead
	return form, nil
}

func (d *dashboard) countDead(ctx context.Context, form filterForm) (int64, error) {
	return d.repo.RetryAll(ctx, form.Filter, inbox.RetryAllOptions{DryRun: true})
}

// retryAll starts the job and shows its page.
func (d *dashboard) retryAll(w http.ResponseWriter, r *http.Request, v visitor) error {
	form, err := deadFilter(r)
	if err != nil {
		return err
	}
	rate := d.config.RetryRate
	if typed := r.PostFormValue("rate"); typed != "" {
		if rate, err = strconv.Atoi(typed); err != nil || rate < 1 || rate > d.config.RetryRate {
			return &refusal{http.StatusBadRequest, "The rate must be between 1 and " + number(int64(d.config.RetryRate)) + " messages a second."}
		}
	}
	status, err := d.startJob(r.Context(), v, form, rate, 0)
	if err != nil {
		return err
	}
	return redirect(w, v, "jobs/"+status.ID)
}

func (d *dashboard) startJob(ctx context.Context, v visitor, form filterForm, rate int, limit int64) (jobStatus, error) {
	total, err := d.countDead(ctx, form)
	if err != nil {
		return jobStatus{}, err
	}
	if limit > 0 {
		total = min(total, limit)
	}
	status, err := d.jobs.start(d.repo, jobStatus{Actor: v.actor, Form: form, PerSecond: rate, Limit: limit, Total: total}, d.config.Done)
	if errors.Is(err, errTooManyJobs) {
		return status, &refusal{http.StatusConflict, "Other jobs are running already. Wait for one to end, or stop it."}
	}
	return status, err
}

func (d *dashboard) allJobs(w http.ResponseWriter, r *http.Request, v visitor) error {
	return d.show(w, r, v, http.StatusOK, page{View: "jobs", Title: "Jobs", Section: "jobs", Refresh: 5, Body: d.jobs.list()})
}

func (d *dashboard) job(w http.ResponseWriter, r *http.Request, v visitor) error {
	job, err := d.findJob(r)
	if err != nil {
		return err
	}
	status := job.now()
	p := page{View: "job", Title: "Retry all", Section: "jobs", Body: status}
	if status.Running() {
		p.Refresh = 1
	}
	return d.show(w, r, v, http.StatusOK, p)
}

func (d *dashboard) stopJob(w http.ResponseWriter, r *http.Request, v visitor) error {
	job, err := d.findJob(r)
	if err != nil {
		return err
	}
	d.stop(r, v, job)
	return redirect(w, v, "jobs/"+job.id+"?done=stop")
}

func (d *dashboard) stop(r *http.Request, v visitor, job *job) {
	job.cancel()
	d.config.Logger.InfoContext(r.Context(), "dashboard: job stopped", "actor", v.actor, "job", job.id)
}

func (d *dashboard) findJob(r *http.Request) (*job, error) {
	job, found := d.jobs.find(r.PathValue("job"))
	if !found {
		return nil, &refusal{http.StatusNotFound, "This process does not know the job. It may run in another process of the service, or it ended with its process. What it had retried stays retried; the list of dead messages shows what is left."}
	}
	return job, nil
}
