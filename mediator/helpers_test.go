package mediator_test

import (
	"context"
	"errors"
	"testing"
)

type creditAccount struct {
	Account string
	Cents   int
}

type receipt struct{ Balance int }

type closeAccount struct{ Account string }

type accountCredited struct{ Account string }

// Types that cannot be bound.
type (
	auditor interface{ Audit() }
	handle  *creditAccount
)

func credit(_ context.Context, c creditAccount) (receipt, error) {
	return receipt{Balance: 100 + c.Cents}, nil
}

func closeIt(context.Context, closeAccount) error { return nil }

func ignore(context.Context, accountCredited) error { return nil }

// panicText returns the text of the error that f panics with.
func panicText(t *testing.T, f func()) (text string) {
	t.Helper()
	defer func() {
		t.Helper()
		err, ok := recover().(error)
		if !ok {
			t.Fatal("no panic with an error")
		}
		text = err.Error()
	}()
	f()
	return ""
}

// as returns the E in err's chain.
func as[E error](t *testing.T, err error) E {
	t.Helper()
	var e E
	if !errors.As(err, &e) {
		t.Fatalf("got error %v (%T), want a %T", err, err, e)
	}
	return e
}

// equal compares comparable values.
func equal[T comparable](t *testing.T, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("\n got %v\nwant %v", got, want)
	}
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("unexpected error: %v", err)
	}
}
