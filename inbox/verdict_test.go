package inbox_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
)

func TestVerdictsKeepTheirError(t *testing.T) {
	t.Parallel()
	cause := errors.New("boom")
	for name, verdict := range map[string]error{
		"Permanent":  inbox.Permanent(cause),
		"RetryAfter": inbox.RetryAfter(time.Second, cause),
	} {
		if !errors.Is(verdict, cause) || verdict.Error() != "boom" {
			t.Errorf("%s: %v", name, verdict)
		}
	}
	if inbox.Permanent(nil) != nil || inbox.RetryAfter(time.Second, nil) != nil {
		t.Error("a verdict on nil is an error")
	}
}

func TestIsPermanentSeesThroughWrapping(t *testing.T) {
	t.Parallel()
	permanent := inbox.Permanent(errors.New("boom"))
	for want, errs := range map[bool][]error{
		true:  {permanent, fmt.Errorf("x: %w", permanent), errors.Join(errors.New("y"), permanent), inbox.RetryAfter(0, permanent)},
		false: {nil, errors.New("boom"), inbox.RetryAfter(0, errors.New("boom")), inbox.Postpone(0), fmt.Errorf("x: %v", permanent)},
	} {
		for _, err := range errs {
			if inbox.IsPermanent(err) != want {
				t.Errorf("%v: IsPermanent is not %v", err, want)
			}
		}
	}
}
