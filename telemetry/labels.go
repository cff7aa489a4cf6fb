package telemetry

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/letterbox-go/letterbox/inbox"
)

// other stands for every name and source that is not known beforehand.
const other = "other"

// errorTypesMost bounds the values of error.type, in case an ErrorType method
// makes them up.
const errorTypesMost = 100

// labels keeps the values of attributes few: whoever sends messages must not be
// able to make series.
type labels struct {
	names    *inbox.NameMap
	receipts map[string]bool
	sources  map[string]bool

	mu         sync.Mutex
	errorTypes map[string]bool
}

func newLabels(config *Config) *labels {
	l := &labels{
		names:      config.Names,
		receipts:   map[string]bool{},
		sources:    map[string]bool{"": true},
		errorTypes: map[string]bool{},
	}
	for _, name := range config.ReceiptNames {
		l.receipts[name] = true
	}
	for _, source := range config.Sources {
		l.sources[source] = true
	}
	return l
}

func (l *labels) name(name string) string {
	if l.names.Has(name) || l.receipts[name] {
		return name
	}
	return other
}

func (l *labels) source(source string) string {
	if l.sources[source] {
		return source
	}
	return other
}

// destination is what a message was processed from: its source where that is
// known, else its name.
func (l *labels) destination(identity inbox.Identity) string {
	if identity.Source != "" && l.sources[identity.Source] {
		return identity.Source
	}
	return l.name(identity.Name)
}

// destinationOf is what a run's messages, which are of one name, have in common.
func (l *labels) destinationOf(messages []inbox.Info) string {
	first := messages[0].Identity
	for _, m := range messages {
		if m.Source != first.Source {
			return l.name(first.Name)
		}
	}
	return l.destination(first)
}

// errorType is a word for the kind of err: what its method ErrorType says, else
// the Go type below all wrapping. The text never counts.
func (l *labels) errorType(err error) string {
	word := errorWord(err)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.errorTypes[word] {
		if len(l.errorTypes) >= errorTypesMost {
			return otherErrorType
		}
		l.errorTypes[word] = true
	}
	return word
}

func errorWord(err error) string {
	var typed interface{ ErrorType() string }
	if errors.As(err, &typed) {
		if word := typed.ErrorType(); word != "" {
			return word
		}
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "canceled"
	}
	return typeWord(err)
}

// plainErrors are types that carry nothing but a text.
var plainErrors = map[string]bool{
	fmt.Sprintf("%T", errors.New("")):                         true,
	fmt.Sprintf("%T", fmt.Errorf("%w", context.Canceled)):     true,
	fmt.Sprintf("%T", fmt.Errorf("%w%w", errPlain, errPlain)): true,
	fmt.Sprintf("%T", errors.Join(errPlain)):                  true,
	fmt.Sprintf("%T", inbox.Permanent(errPlain)):              true,
	fmt.Sprintf("%T", inbox.RetryAfter(0, errPlain)):          true,
}

var errPlain = errors.New("")

// typeWord looks below wrapping, in joined errors too, for a type that tells.
func typeWord(err error) string {
	if err == nil {
		return otherErrorType
	}
	var below []error
	switch wrapper := err.(type) { //nolint:errorlint // this is the walk itself
	case interface{ Unwrap() error }:
		below = []error{wrapper.Unwrap()}
	case interface{ Unwrap() []error }:
		below = wrapper.Unwrap()
	}
	for _, e := range below {
		if word := typeWord(e); word != otherErrorType {
			return word
		}
	}
	if word := fmt.Sprintf("%T", err); !plainErrors[word] {
		return word
	}
	return otherErrorType
}
