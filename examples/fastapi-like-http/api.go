package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/letterbox-go/letterbox/inbox"
)

const (
	// acceptTimeout bounds the wait for the database before the provider is told
	// to come back.
	acceptTimeout = 10 * time.Second
	retryAfter    = "5" // seconds
	// mostProblems is how many are listed in one answer.
	mostProblems = 20
)

// routes returns the HTTP API.
func (a *app) routes() http.Handler {
	config := huma.DefaultConfig("Pix notifications", "1.0.0")
	config.CreateHooks = nil                         // no $schema in answers
	config.AllowAdditionalPropertiesByDefault = true // a provider adds fields, and would resend for ever
	config.SchemasPath, config.DocsPath = "", ""     // the page would load scripts from elsewhere
	config.Formats = map[string]huma.Format{"application/json": jsonFormat, "json": jsonFormat}
	config.Transformers = []huma.Transformer{discreet}
	mux := http.NewServeMux()
	api := humago.New(mux, config)

	huma.Register(api, huma.Operation{
		OperationID:     "receive-pix",
		Method:          http.MethodPost,
		Path:            "/webhooks/pix",
		Summary:         "Receive notifications of credited Pix",
		DefaultStatus:   http.StatusAccepted,
		MaxBodyBytes:    -1, // edge has read the body already
		BodyReadTimeout: -1,
		Errors: []int{
			http.StatusBadRequest, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge,
			http.StatusUnsupportedMediaType, http.StatusServiceUnavailable,
		},
	}, a.receivePix)
	huma.Register(api, huma.Operation{
		OperationID: "get-account",
		Method:      http.MethodGet,
		Path:        "/accounts/{chave}",
		Summary:     "Read an account",
		Errors:      []int{http.StatusNotFound, http.StatusServiceUnavailable},
	}, a.getAccount)
	huma.Register(api, huma.Operation{
		OperationID: "get-inbox-stats",
		Method:      http.MethodGet,
		Path:        "/inbox/stats",
		Summary:     "Count the notifications by what became of them",
		Errors:      []int{http.StatusServiceUnavailable},
	}, a.getStats)
	huma.Register(api, huma.Operation{
		OperationID: "get-health",
		Method:      http.MethodGet,
		Path:        "/healthz",
		Summary:     "Ask whether the database answers",
		Errors:      []int{http.StatusServiceUnavailable},
	}, a.getHealth)
	return edge(mux)
}

// receipt answers a webhook: Accepted + Duplicates + Mismatches == Received.
type receipt struct {
	Received   int `json:"received" doc:"Notifications in the request"`
	Accepted   int `json:"accepted" doc:"New ones, stored"`
	Duplicates int `json:"duplicates" doc:"Known ones: nothing to do"`
	Mismatches int `json:"mismatches" doc:"Known endToEndIds that came with another content; the first one counts"`
}

type receivePixInput struct{ Body webhook }

type receivePixOutput struct{ Body receipt }

// receivePix stores all notifications of a request in one batch. When it answers
// 202, they are committed; their effect comes later, from the processor.
func (a *app) receivePix(ctx context.Context, in *receivePixInput) (*receivePixOutput, error) {
	entries, problems := in.Body.entries()
	if len(problems) > 0 {
		return nil, huma.Error422UnprocessableEntity("validation failed", problems...)
	}
	ctx, cancel := context.WithTimeout(ctx, acceptTimeout)
	defer cancel()
	outcomes, err := a.repo.Accept(ctx, entries)
	if err != nil {
		return nil, a.refuse(ctx, err)
	}
	answer := receipt{Received: len(entries)}
	for _, outcome := range outcomes {
		switch outcome.Kind {
		case inbox.Stored:
			answer.Accepted++
		case inbox.Duplicate:
			answer.Duplicates++
		case inbox.Mismatch:
			// Somebody has to look at it, but not the provider, who would
			// only send it again: it is answered like a duplicate.
			answer.Mismatches++
			a.log.WarnContext(ctx, "a known Pix came with another content", "endToEndId", outcome.Identity.MessageID)
		}
	}
	return &receivePixOutput{answer}, nil
}

// refuse turns an error of Accept into an answer.
func (a *app) refuse(ctx context.Context, err error) error {
	var entry *inbox.EntryError
	switch {
	case errors.As(err, &entry):
		return huma.Error422UnprocessableEntity("validation failed", &huma.ErrorDetail{
			Location: fmt.Sprintf("body.pix[%d]", entry.Index),
			Message:  entry.Error(),
		})
	case errors.Is(err, inbox.ErrBatchTooLarge):
		return huma.NewError(http.StatusRequestEntityTooLarge, "too many notifications in one request")
	}
	return a.unavailable(ctx, err)
}

// unavailable asks the client to come back, and keeps the reason to ourselves.
func (a *app) unavailable(ctx context.Context, err error) error {
	a.log.ErrorContext(ctx, "the database fails", "error", err)
	return huma.ErrorWithHeaders(
		huma.Error503ServiceUnavailable("the database does not answer; nothing was confirmed, send again"),
		http.Header{"Retry-After": {retryAfter}})
}

type accountInput struct {
	Chave string `path:"chave" example:"ana@example.com"`
}

type accountOutput struct{ Body Account }

func (a *app) getAccount(ctx context.Context, in *accountInput) (*accountOutput, error) {
	if !validChave(in.Chave) {
		return nil, huma.Error404NotFound(errUnknownAccount.Error())
	}
	account, err := findAccount(ctx, a.db, in.Chave)
	switch {
	case errors.Is(err, errUnknownAccount):
		return nil, huma.Error404NotFound(err.Error())
	case err != nil:
		return nil, a.unavailable(ctx, err)
	}
	return &accountOutput{account}, nil
}

// stats is inbox.Stats as JSON.
type stats struct {
	Pending          int64   `json:"pending" doc:"Waiting, retries included"`
	Processed        int64   `json:"processed"`
	Dead             int64   `json:"dead" doc:"Given up; an operator has to decide"`
	Estimated        bool    `json:"estimated" doc:"Whether processed is an estimate"`
	OldestDueSeconds float64 `json:"oldest_due_seconds" doc:"How long the oldest due message has been waiting"`
}

type statsOutput struct{ Body stats }

func (a *app) getStats(ctx context.Context, _ *struct{}) (*statsOutput, error) {
	s, err := a.repo.Stats(ctx)
	if err != nil {
		return nil, a.unavailable(ctx, err)
	}
	return &statsOutput{stats{s.Pending, s.Processed, s.Dead, s.Estimated, s.OldestDue.Seconds()}}, nil
}

type healthOutput struct {
	Body struct {
		Status string `json:"status" enum:"ok"`
	}
}

func (a *app) getHealth(ctx context.Context, _ *struct{}) (*healthOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	// A statement, since a ping may be answered by the pool alone.
	if _, err := a.db.ExecContext(ctx, "SELECT 1"); err != nil {
		return nil, a.unavailable(ctx, err)
	}
	out := &healthOutput{}
	out.Body.Status = "ok"
	return out, nil
}

// discreet shortens error answers: huma shows what it found at each place, which
// here is a customer's data, and up to a megabyte of it.
func discreet(_ huma.Context, _ string, body any) (any, error) {
	model, ok := body.(*huma.ErrorModel)
	if !ok {
		return body, nil
	}
	model.Errors = model.Errors[:min(len(model.Errors), mostProblems)]
	for _, e := range model.Errors {
		if e != nil {
			e.Value = nil
		}
	}
	return model, nil
}
