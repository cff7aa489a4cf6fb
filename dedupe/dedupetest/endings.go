package dedupetest

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/letterbox-go/letterbox/dedupe"
)

// endings are the ways a run can fail without the end of its process.
var endings = map[string]func(t *testing.T, guard *dedupe.Guard, id string){
	"error": func(t *testing.T, guard *dedupe.Guard, id string) {
		ran, err := guard.Do(patient(t), "scope", id, func(context.Context) error { return errFailed })
		if !ran || !errors.Is(err, errFailed) {
			t.Errorf("got %v, %v", ran, err)
		}
	},
	"panic": func(t *testing.T, guard *dedupe.Guard, id string) {
		defer func() {
			if r := recover(); r != "as told" {
				t.Errorf("the panic became %v", r)
			}
		}()
		_, _ = guard.Do(patient(t), "scope", id, func(context.Context) error { panic("as told") })
	},
	"Goexit": func(t *testing.T, guard *dedupe.Guard, id string) {
		ctx, ended, returned := patient(t), make(chan struct{}), false
		go func() {
			defer close(ended)
			_, _ = guard.Do(ctx, "scope", id, func(context.Context) error { runtime.Goexit(); return nil })
			returned = true
		}()
		<-ended
		if returned {
			t.Error("Do returned after Goexit")
		}
	},
	"context": func(t *testing.T, guard *dedupe.Guard, id string) {
		ctx, cancel := context.WithCancel(patient(t))
		ran, err := guard.Do(ctx, "scope", id, func(ctx context.Context) error {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		})
		if !ran || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, %v", ran, err)
		}
	},
}
