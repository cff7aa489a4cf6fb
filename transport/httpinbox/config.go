package httpinbox

import (
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/transport/backpressure"
)

// Config holds the settings of a handler for messages of type T. Identify is
// required; everything else has a default.
type Config[T any] struct {
	// Identify says what the message id is: IdempotencyKey, StandardWebhooks,
	// CloudEvents, FromBody, or one's own.
	Identify Identifier

	// Name is what messages are stored under. Default: the name that T is
	// registered under. Required when T is an interface, unless CloudEvents
	// picks the name by the type of the event.
	Name string

	// Source is the scope in which message ids are unique. An identifier that
	// finds a source in the request (CloudEvents) overrides it.
	Source string
	// SourceFunc replaces Source where the scope depends on the sender: keys
	// that clients choose are unique per client, so take the client from the
	// credentials, never from what it says about itself. It is called before
	// the body is read. An error that is not a *Problem is answered 403.
	SourceFunc func(r *http.Request) (string, error)

	// Validate looks at the decoded message, after the Validate method that T
	// may have. An error that is not a *Problem is answered 422, and its text
	// is shown to the sender.
	Validate func(message T) error
	// Entry may add an ordering key, a due time or metadata to the entry. An
	// error is treated as one of Validate.
	Entry func(r *http.Request, message T, entry *inbox.Entry) error

	// StatusURL is where the sender can see what became of the message; see
	// StatusPath and NewStatus. Default: no status_url, no Location.
	StatusURL func(identity inbox.Identity) string

	// MediaTypes are accepted as Content-Type, compared without parameters.
	// Default: application/json. CloudEvents takes application/cloudevents+json
	// besides.
	MediaTypes []string
	// MaxBody is the largest body in bytes. Default 1 MiB. The repository's own
	// limit (inbox.Config.MaxPayload) holds as well.
	MaxBody int64
	// AcceptTimeout bounds the wait for the database. Default 10 s; negative:
	// as long as the client waits.
	AcceptTimeout time.Duration
	// RetryAfter is what a sender is told when the database is away. Default 5 s.
	RetryAfter time.Duration
	// Mismatch says how a known identity with another body is answered.
	Mismatch Mismatch
	// Saturation refuses messages with 429 while the processors are behind.
	// Default: never.
	Saturation *backpressure.Gate
	// Logger receives outages and mismatches. Neither bodies nor headers are
	// logged. Default: discard.
	Logger *slog.Logger
}

// Mismatch is how a repeat whose body differs from the stored one is answered.
// The stored message is untouched in any case, and a line is logged.
type Mismatch uint8

const (
	// MismatchByIdentifier leaves it to the identifier: IdempotencyKey and
	// FromBody refuse; StandardWebhooks, CloudEvents and one's own accept.
	MismatchByIdentifier Mismatch = iota
	// MismatchRefuse answers 422.
	MismatchRefuse
	// MismatchAccept answers 202 with the outcome "mismatch", for senders that
	// would try again for ever.
	MismatchAccept
)

func (c *Config[T]) setDefaults(names *inbox.NameMap) {
	if len(c.MediaTypes) == 0 {
		c.MediaTypes = []string{"application/json"}
	}
	setDefault(&c.MaxBody, 1<<20)
	setDefault(&c.AcceptTimeout, 10*time.Second)
	setDefault(&c.RetryAfter, 5*time.Second)
	if c.Mismatch == MismatchByIdentifier {
		c.Mismatch = MismatchAccept
		if refuser, ok := c.Identify.(interface{ refusesMismatch() }); ok && refuser != nil {
			c.Mismatch = MismatchRefuse
		}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Name == "" && !isInterface[T]() {
		var zero T
		c.Name, _ = names.NameOf(zero)
	}
}

func setDefault[V comparable](value *V, fallback V) {
	var zero V
	if *value == zero {
		*value = fallback
	}
}

// validate joins every problem.
func (c *Config[T]) validate(names *inbox.NameMap) error {
	var problems []error
	report := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("httpinbox: config: "+format, args...))
	}
	if c.Identify == nil {
		report("Identify is required")
	} else if typed, ok := c.Identify.(interface{ checkType(reflect.Type) error }); ok {
		if err := typed.checkType(reflect.TypeFor[T]()); err != nil {
			report("Identify: %v", err)
		}
	}
	var picked []string // names that the identifier chooses from
	if picker, ok := c.Identify.(interface{ names() []string }); ok {
		picked = picker.names()
	}
	switch {
	case c.Name == "" && len(picked) == 0:
		report("Name: %v is not registered in the name map", reflect.TypeFor[T]())
	case c.Name != "":
		picked = append(picked, c.Name)
	}
	for _, name := range picked {
		if !names.Has(name) {
			report("Name: %q is not registered in the name map", name)
		}
	}
	if c.Source != "" && c.SourceFunc != nil {
		report("Source and SourceFunc exclude each other")
	}
	for _, mediaType := range c.MediaTypes {
		if plain, params, err := mime.ParseMediaType(mediaType); err != nil || len(params) > 0 || plain != mediaType || !strings.Contains(plain, "/") {
			report("MediaTypes: %q is not a media type in lower case without parameters", mediaType)
		}
	}
	if c.MaxBody < 0 {
		report("MaxBody: negative")
	}
	if c.RetryAfter < 0 {
		report("RetryAfter: negative")
	}
	if c.Mismatch > MismatchAccept {
		report("Mismatch: %d is not a choice", c.Mismatch)
	}
	return errors.Join(problems...)
}

func isInterface[T any]() bool { return reflect.TypeFor[T]().Kind() == reflect.Interface }
