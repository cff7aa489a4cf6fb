package dashboard

import (
	"net/http"
	"time"
)

// route is one address. Whoever has at least the level may use it.
type route struct {
	method, pattern string
	level           Level
	serve           func(d *dashboard, w http.ResponseWriter, r *http.Request, v visitor) error
	timeout         time.Duration // if longer than Config.Timeout
}

// routes are all addresses. GET changes nothing; POST that changes something
// takes an operator.
var routes = []route{
	{method: "GET", pattern: "/{$}", level: ReadOnly, serve: (*dashboard).overview},
	{method: "GET", pattern: "/messages", level: ReadOnly, serve: (*dashboard).messages},
	{method: "GET", pattern: "/messages/{id}", level: ReadOnly, serve: (*dashboard).message},
	{method: "POST", pattern: "/messages/{id}/payload", level: ReadOnly, serve: (*dashboard).payload},
	{method: "GET", pattern: "/messages/{id}/retry", level: Operator, serve: (*dashboard).askRetry},
	{method: "POST", pattern: "/messages/{id}/retry", level: Operator, serve: (*dashboard).retry},
	{method: "GET", pattern: "/messages/{id}/discard", level: Operator, serve: (*dashboard).askDiscard},
	{method: "POST", pattern: "/messages/{id}/discard", level: Operator, serve: (*dashboard).discard},
	{method: "POST", pattern: "/messages/{id}/edit", level: Operator, serve: (*dashboard).edit},
	{method: "GET", pattern: "/dead", level: ReadOnly, serve: (*dashboard).dead},
	{method: "GET", pattern: "/retry-all", level: Operator, serve: (*dashboard).askRetryAll},
	{method: "POST", pattern: "/retry-all", level: Operator, serve: (*dashboard).retryAll},
	{method: "GET", pattern: "/jobs", level: ReadOnly, serve: (*dashboard).allJobs},
	{method: "GET", pattern: "/jobs/{job}", level: ReadOnly, serve: (*dashboard).job},
	{method: "POST", pattern: "/jobs/{job}/stop", level: Operator, serve: (*dashboard).stopJob},
	{method: "GET", pattern: "/keys/skip", level: Operator, serve: (*dashboard).askSkip},
	{method: "POST", pattern: "/keys/skip", level: Operator, serve: (*dashboard).skip},
	{method: "GET", pattern: "/names", level: ReadOnly, serve: (*dashboard).names},
	{method: "GET", pattern: "/names/pause", level: Operator, serve: (*dashboard).askPause},
	{method: "POST", pattern: "/names/pause", level: Operator, serve: (*dashboard).pause},
	{method: "GET", pattern: "/names/resume", level: Operator, serve: (*dashboard).askResume},
	{method: "POST", pattern: "/names/resume", level: Operator, serve: (*dashboard).resume},
	{method: "GET", pattern: "/doctor", level: ReadOnly, serve: (*dashboard).doctor, timeout: doctorTimeout},
	{method: "GET", pattern: "/assets/{file}", level: ReadOnly, serve: (*dashboard).asset},

	{method: "GET", pattern: "/api/openapi.yaml", level: ReadOnly, serve: (*dashboard).apiDescription},
	{method: "GET", pattern: "/api/stats", level: ReadOnly, serve: (*dashboard).apiStats},
	{method: "GET", pattern: "/api/minutes", level: ReadOnly, serve: (*dashboard).apiMinutes},
	{method: "GET", pattern: "/api/processors", level: ReadOnly, serve: (*dashboard).apiProcessors},
	{method: "GET", pattern: "/api/messages", level: ReadOnly, serve: (*dashboard).apiMessages},
	{method: "GET", pattern: "/api/messages/{id}", level: ReadOnly, serve: (*dashboard).apiMessage},
	{method: "POST", pattern: "/api/messages/{id}/payload", level: ReadOnly, serve: (*dashboard).apiPayload},
	{method: "POST", pattern: "/api/messages/{id}/retry", level: Operator, serve: (*dashboard).apiRetry},
	{method: "POST", pattern: "/api/messages/{id}/edit", level: Operator, serve: (*dashboard).apiEdit},
	{method: "POST", pattern: "/api/messages/{id}/discard", level: Operator, serve: (*dashboard).apiDiscard},
	{method: "GET", pattern: "/api/dead-errors", level: ReadOnly, serve: (*dashboard).apiDeadErrors},
	{method: "GET", pattern: "/api/parked-keys", level: ReadOnly, serve: (*dashboard).apiParkedKeys},
	{method: "POST", pattern: "/api/keys/skip", level: Operator, serve: (*dashboard).apiSkip},
	{method: "GET", pattern: "/api/names/paused", level: ReadOnly, serve: (*dashboard).apiPaused},
	{method: "POST", pattern: "/api/names/pause", level: Operator, serve: (*dashboard).apiPause},
	{method: "POST", pattern: "/api/names/resume", level: Operator, serve: (*dashboard).apiResume},
	{method: "POST", pattern: "/api/retry-all", level: Operator, serve: (*dashboard).apiRetryAll},
	{method: "GET", pattern: "/api/jobs", level: ReadOnly, serve: (*dashboard).apiJobs},
	{method: "GET", pattern: "/api/jobs/{job}", level: ReadOnly, serve: (*dashboard).apiJob},
	{method: "POST", pattern: "/api/jobs/{job}/stop", level: Operator, serve: (*dashboard).apiStopJob},
	{method: "GET", pattern: "/api/doctor", level: ReadOnly, serve: (*dashboard).apiDoctor, timeout: doctorTimeout},
}
