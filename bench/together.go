package main

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
)

// together runs all functions and returns when all have; the first error ends the
// context of the others.
func together(ctx context.Context, functions ...func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, fn := range functions {
		group.Go(func() error { return fn(ctx) })
	}
	return group.Wait()
}

func repeat(n int, fn func(context.Context) error) []func(context.Context) error {
	all := make([]func(context.Context) error, n)
	for i := range all {
		all[i] = fn
	}
	return all
}

// ignoreEnd drops the error of a wait that was ended on purpose.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
