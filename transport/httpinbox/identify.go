package httpinbox

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
)

// Identifier finds the identity of a message in a request, and vouches for it
// where the protocol has signatures.
type Identifier interface {
	// Identify is called with the whole body, before it is decoded. An error
	// that is not a *Problem is answered 400. It must not keep body, and must
	// be safe for concurrent use.
	Identify(r *http.Request, body []byte) (Identified, error)
}

// Identified is what an Identifier found out.
type Identified struct {
	// MessageID is required.
	MessageID string
	// Source overrides Config.Source where it is not empty.
	Source string
	// Name overrides Config.Name where it is not empty.
	Name string
	// Payload is the message where that is not the body itself: the part of an
	// envelope, as it stands there. Nil: the body.
	Payload []byte
	// MediaType is that of Payload. Empty: that of the request.
	MediaType string
	// Metadata is stored with the message.
	Metadata map[string]string
}

// preflighter is an identifier that can refuse a request by its header, before
// the body is read.
type preflighter interface{ preflight(r *http.Request) error }

// enveloper is an identifier that takes a media type besides the configured ones.
type enveloper interface{ envelope(mediaType string) bool }

// messageIdentifier is an identifier that needs the decoded message.
type messageIdentifier interface {
	identifyMessage(message any) (string, error)
}

// FromBody takes the message id from the decoded message, for senders that put
// their id there. T must be the type of the Config. An empty id is answered 422.
//
// An id with U+FFFD in it is refused: that is what encoding/json makes of bytes
// that are not text, and two ids must not become one that way.
func FromBody[T any](id func(message T) string) Identifier { return fromBody[T](id) }

type fromBody[T any] func(message T) string

func (fromBody[T]) refusesMismatch() {}

// Identify leaves everything to identifyMessage.
func (fromBody[T]) Identify(*http.Request, []byte) (Identified, error) { return Identified{}, nil }

func (f fromBody[T]) checkType(typ reflect.Type) error {
	if f == nil {
		return errors.New("FromBody needs a function")
	}
	if own := reflect.TypeFor[T](); own != typ {
		return fmt.Errorf("FromBody for %v, but the handler is for %v", own, typ)
	}
	return nil
}

func (f fromBody[T]) identifyMessage(message any) (string, error) {
	typed, _ := message.(T) // checkType has seen to it
	id := f(typed)
	switch {
	case id == "":
		return "", problem(http.StatusUnprocessableEntity, codeID, "the body holds no message id")
	case strings.ContainsRune(id, '\uFFFD'):
		return "", problem(http.StatusUnprocessableEntity, codeID, "the message id in the body is not valid text")
	}
	return id, nil
}

// single returns the value of a header field that must not be repeated.
func single(r *http.Request, field string) (value string, err error) {
	values := r.Header.Values(field)
	if len(values) > 1 {
		return "", fmt.Errorf("the header field %s is there %d times", field, len(values))
	}
	if len(values) == 0 {
		return "", nil
	}
	return values[0], nil
}
