package httpinbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/transport/tracecontext"
)

// Answer is the body of a 202.
type Answer struct {
	MessageID string `json:"message_id"`
	// Outcome is "stored", "duplicate" or "mismatch".
	Outcome   string `json:"outcome"`
	StatusURL string `json:"status_url,omitempty"`
}

type handler[T any] struct {
	repo   *inbox.Repository
	config Config[T]
	log    throttle
}

// New returns a handler that accepts messages of type T into repo. T is decoded
// only to see whether it can be: what is stored is the body as it was received.
// A config that cannot work is an error that names every problem.
func New[T any](repo *inbox.Repository, config Config[T]) (http.Handler, error) {
	if repo == nil {
		return nil, errors.New("httpinbox: New needs a repository")
	}
	config.setDefaults(repo.Names())
	if err := config.validate(repo.Names()); err != nil {
		return nil, err
	}
	return &handler[T]{repo: repo, config: config}, nil
}

// ServeHTTP answers 202 after the commit, or a problem.
func (h *handler[T]) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	outcome, err := h.accept(w, r)
	if err == nil && outcome.Kind == inbox.Mismatch {
		err = h.mismatch(r.Context(), outcome)
	}
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	answer := Answer{MessageID: outcome.Identity.MessageID, Outcome: outcome.Kind.String()}
	if h.config.StatusURL != nil {
		answer.StatusURL = h.config.StatusURL(outcome.Identity)
		w.Header().Set("Location", answer.StatusURL)
	}
	writeJSON(w, http.StatusAccepted, "application/json", answer)
}

// accept goes from cheap checks to dear ones; nothing is stored unless all pass.
func (h *handler[T]) accept(w http.ResponseWriter, r *http.Request) (inbox.Outcome, error) {
	if r.Method != http.MethodPost {
		return inbox.Outcome{}, problem(http.StatusMethodNotAllowed, codeMethod, "only POST is allowed here").with("Allow", http.MethodPost)
	}
	if err := h.checkHeader(r); err != nil {
		return inbox.Outcome{}, err
	}
	source, err := h.source(r)
	if err != nil {
		return inbox.Outcome{}, err
	}
	if err := h.checkSaturation(r.Context()); err != nil {
		return inbox.Outcome{}, err
	}
	body, err := readBody(w, r, h.config.MaxBody)
	if err != nil {
		return inbox.Outcome{}, err
	}
	entry, err := h.entry(r, body, source)
	if err != nil {
		return inbox.Outcome{}, err
	}
	ctx, cancel := bounded(r, h.config.AcceptTimeout)
	defer cancel()
	outcomes, err := h.repo.Accept(ctx, []inbox.Entry{entry})
	if err != nil {
		return inbox.Outcome{}, err
	}
	return outcomes[0], nil
}

func (h *handler[T]) source(r *http.Request) (string, error) {
	if h.config.SourceFunc == nil {
		return h.config.Source, nil
	}
	source, err := h.config.SourceFunc(r)
	return source, asProblem(err, http.StatusForbidden, codeSource)
}

func (h *handler[T]) checkSaturation(ctx context.Context) error {
	if h.config.Saturation == nil {
		return nil
	}
	// An error means that the database does not answer: Accept will say so.
	if saturated, retryAfter, _ := h.config.Saturation.Saturated(ctx); saturated {
		p := problem(http.StatusTooManyRequests, codeSaturated, "too many messages are waiting to be processed")
		p.RetryAfter = retryAfter
		return p
	}
	return nil
}

// entry makes the entry of a request, or says what is wrong with it.
func (h *handler[T]) entry(r *http.Request, body []byte, source string) (inbox.Entry, error) {
	found, err := h.config.Identify.Identify(r, body)
	if err != nil {
		return inbox.Entry{}, asProblem(err, http.StatusBadRequest, codeID)
	}
	raw := inbox.Raw{Name: h.config.Name, Payload: body}
	if found.Name != "" {
		raw.Name = found.Name
	}
	contentType := r.Header.Get("Content-Type")
	if found.Payload != nil {
		raw.Payload = found.Payload
		if found.MediaType != "" {
			contentType = found.MediaType
			if err := h.checkMediaType(contentType); err != nil {
				return inbox.Entry{}, err
			}
		}
	}
	message, err := h.decode(raw, contentType)
	if err != nil {
		return inbox.Entry{}, err
	}
	if late, ok := h.config.Identify.(messageIdentifier); ok {
		if found.MessageID, err = late.identifyMessage(message); err != nil {
			return inbox.Entry{}, err
		}
	}
	entry := inbox.Entry{MessageID: found.MessageID, Source: source, Message: raw, Metadata: traced(r, found.Metadata)}
	if found.Source != "" {
		entry.Source = found.Source
	}
	if h.config.Entry != nil {
		err = h.config.Entry(r, message, &entry)
	}
	return entry, asProblem(err, http.StatusUnprocessableEntity, codeShape)
}

// decode sees whether the processor will be able to, with the same codec, and
// lets the application look at the result.
func (h *handler[T]) decode(raw inbox.Raw, contentType string) (T, error) {
	var none T
	if isJSON(contentType) && !json.Valid(raw.Payload) {
		return none, problem(http.StatusBadRequest, codeJSON, "the message is not valid JSON")
	}
	decoded, err := h.repo.Names().Decode(raw.Name, raw.Payload)
	if err != nil {
		return none, problem(http.StatusUnprocessableEntity, codeShape, "%s", shapeText(err))
	}
	message, ok := as[T](decoded)
	if !ok {
		h.config.Logger.Error("httpinbox: the name is registered for another type",
			"name", raw.Name, "registered", fmt.Sprintf("%T", decoded), "wanted", reflect.TypeFor[T]().String())
		return none, problem(http.StatusInternalServerError, codeInternal, "this route is not set up correctly")
	}
	if v, ok := any(message).(validator); ok {
		err = v.Validate()
	} else if v, ok := any(&message).(validator); ok {
		err = v.Validate()
	}
	if err == nil && h.config.Validate != nil {
		err = h.config.Validate(message)
	}
	return message, asProblem(err, http.StatusUnprocessableEntity, codeShape)
}

type validator interface{ Validate() error }

// as converts between a type and a pointer to it: to the name map they are one.
func as[T any](decoded any) (T, bool) {
	switch decoded := decoded.(type) {
	case T:
		return decoded, true
	case *T:
		if decoded != nil {
			return *decoded, true
		}
	}
	var none T
	want := reflect.TypeFor[T]()
	value := reflect.ValueOf(decoded)
	if want.Kind() != reflect.Pointer || !value.IsValid() || value.Type() != want.Elem() {
		return none, false
	}
	pointer := reflect.New(want.Elem())
	pointer.Elem().Set(value)
	return pointer.Interface().(T), true
}

// shapeText explains what does not fit, in the words of the sender's JSON and
// without its values.
func shapeText(err error) string {
	var mistyped *json.UnmarshalTypeError
	if errors.As(err, &mistyped) {
		got, _, _ := strings.Cut(mistyped.Value, " ") // "number 1.5" holds the value
		if mistyped.Field == "" {
			return fmt.Sprintf("the message must not be of type %s", got)
		}
		return fmt.Sprintf("the field %s must not be of type %s", mistyped.Field, got)
	}
	return "the message does not have the expected shape"
}

// traced adds the trace context of the request.
func traced(r *http.Request, metadata map[string]string) map[string]string {
	parent, err := single(r, tracecontext.Traceparent)
	if err != nil {
		return metadata
	}
	return tracecontext.Put(metadata, parent, strings.Join(r.Header.Values(tracecontext.Tracestate), ","))
}
