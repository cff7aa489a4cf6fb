package httpinbox

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
)

// StatusPath returns a Config.StatusURL: prefix, for example "/payments/", and
// the message id as one escaped path segment. Mount the handler of NewStatus at
// "GET /payments/{id}".
func StatusPath(prefix string) func(identity inbox.Identity) string {
	return func(identity inbox.Identity) string {
		segment := url.PathEscape(identity.MessageID)
		if segment == "." || segment == ".." { // would be taken for a step in the path
			segment = strings.ReplaceAll(segment, ".", "%2E")
		}
		return prefix + segment
	}
}

// StatusConfig holds the settings of a status route. Name is required.
type StatusConfig struct {
	// Name is that of the messages this route may speak of.
	Name string
	// Source is their source, as in Config.
	Source string
	// SourceFunc replaces Source, as in Config: what a client may see follows
	// from its credentials. An error that is not a *Problem is answered 403.
	SourceFunc func(r *http.Request) (string, error)
	// ID finds the message id in the request. Default: r.PathValue("id").
	ID func(r *http.Request) string
	// Timeout bounds the wait for the database. Default 10 s; negative: as long
	// as the client waits.
	Timeout time.Duration
	// RetryAfter is what a client is told when the database is away. Default 5 s.
	RetryAfter time.Duration
	// Logger receives outages. Default: discard.
	Logger *slog.Logger
}

func (c *StatusConfig) setDefaults() {
	setDefault(&c.Timeout, 10*time.Second)
	setDefault(&c.RetryAfter, 5*time.Second)
	if c.ID == nil {
		c.ID = func(r *http.Request) string { return r.PathValue("id") }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

func (c *StatusConfig) validate(names *inbox.NameMap) error {
	var problems []error
	if !names.Has(c.Name) {
		problems = append(problems, fmt.Errorf("httpinbox: status config: Name: %q is not registered in the name map", c.Name))
	}
	if c.Source != "" && c.SourceFunc != nil {
		problems = append(problems, errors.New("httpinbox: status config: Source and SourceFunc exclude each other"))
	}
	if c.RetryAfter < 0 {
		problems = append(problems, errors.New("httpinbox: status config: RetryAfter: negative"))
	}
	return errors.Join(problems...)
}

// StatusAnswer is what a status route shows: never a payload, metadata or an
// error text.
type StatusAnswer struct {
	MessageID string `json:"message_id"`
	// Status is "pending", "processed" or "dead".
	Status string `json:"status"`
	// Attempts is how many attempts have failed.
	Attempts   int       `json:"attempts"`
	ReceivedAt time.Time `json:"received_at"`
	// ProcessedAt is there when Status is "processed".
	ProcessedAt *time.Time `json:"processed_at,omitempty"`
	// Due is when the next attempt may start; there when Status is "pending".
	Due *time.Time `json:"due,omitempty"`
}

// NewStatus returns a handler that says what became of a message of one name
// and source: 200 with a StatusAnswer, 404 for everything else.
func NewStatus(repo *inbox.Repository, config StatusConfig) (http.Handler, error) {
	if repo == nil {
		return nil, errors.New("httpinbox: NewStatus needs a repository")
	}
	config.setDefaults()
	if err := config.validate(repo.Names()); err != nil {
		return nil, err
	}
	return &statusHandler{repo: repo, config: config}, nil
}

type statusHandler struct {
	repo   *inbox.Repository
	config StatusConfig
	log    throttle
}

// ServeHTTP answers GET and HEAD.
func (h *statusHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer, err := h.look(r)
	if err == nil {
		writeJSON(w, http.StatusOK, "application/json", answer)
		return
	}
	var p *Problem
	if !errors.As(err, &p) {
		p = unavailable(r.Context(), &h.log, h.config.Logger, h.config.RetryAfter, "status", err)
	}
	p.write(w)
}

func (h *statusHandler) look(r *http.Request) (StatusAnswer, error) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return StatusAnswer{}, problem(http.StatusMethodNotAllowed, codeMethod, "only GET is allowed here").with("Allow", "GET, HEAD")
	}
	source := h.config.Source
	if h.config.SourceFunc != nil {
		var err error
		if source, err = h.config.SourceFunc(r); err != nil {
			return StatusAnswer{}, asProblem(err, http.StatusForbidden, codeSource)
		}
	}
	ctx, cancel := bounded(r, h.config.Timeout)
	defer cancel()
	id := h.config.ID(r)
	status, err := h.repo.Status(ctx, inbox.Identity{Source: source, MessageID: id, Name: h.config.Name})
	if errors.Is(err, inbox.ErrNotFound) {
		return StatusAnswer{}, problem(http.StatusNotFound, codeNotFound, "no such message")
	}
	if err != nil {
		return StatusAnswer{}, err
	}
	answer := StatusAnswer{MessageID: id, Status: status.Kind.String(), Attempts: status.Attempts, ReceivedAt: status.ReceivedAt}
	if !status.ProcessedAt.IsZero() {
		answer.ProcessedAt = &status.ProcessedAt
	}
	if !status.Due.IsZero() {
		answer.Due = &status.Due
	}
	return answer, nil
}
