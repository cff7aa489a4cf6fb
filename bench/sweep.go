package main

import (
	"context"
	"errors"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

// sweepBeside removes what is older than ten minutes, again and again, as another
// process would. A run beside which nothing was swept is refused.
func sweepBeside(ctx context.Context, o *opened) (stop func() error, err error) {
	db, err := testdb.OpenPGX(o.db.dsn)
	if err != nil {
		return nil, err
	}
	repo, err := newRepository(ctx, db, inbox.Config{Retention: inbox.Retention{DedupeWindow: 10 * time.Minute, PayloadRetention: 10 * time.Minute}})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	before, err := o.db.count(ctx, o.counts().stored)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	end := background(ctx, func(ctx context.Context) error {
		// Also a short run has a whole sweep beside it.
		_, err := repo.Sweep(context.WithoutCancel(ctx))
		for err == nil && ctx.Err() == nil {
			select {
			case <-time.After(10 * time.Millisecond):
				_, err = repo.Sweep(ctx)
			case <-ctx.Done():
			}
		}
		return err
	})
	return func() error {
		err := errors.Join(end(), db.Close())
		after, failure := o.db.count(context.WithoutCancel(ctx), o.counts().stored)
		if err = errors.Join(err, failure); err == nil && after >= before {
			err = errors.New("nothing was swept meanwhile")
		}
		return err
	}, nil
}
