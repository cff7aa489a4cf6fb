package main

import (
	"context"
	"fmt"
	"time"
)

// setBased claims, handles and settles a batch in one statement: no row goes to
// Go and back. It is the limit of what the database can do with these tables.
type setBased struct{ byHand }

func newSetBased() peer { return &setBased{} }

func (s *setBased) process(ctx context.Context, how settings, w *work) error {
	query := fmt.Sprintf(setBasedAll, how.batch)
	return w.until(ctx, func(ctx context.Context) error {
		return together(ctx, repeat(how.workers, func(ctx context.Context) error {
			return s.loop(ctx, query, w)
		})...)
	})
}

func (s *setBased) loop(ctx context.Context, query string, w *work) error {
	var from position
	for ctx.Err() == nil {
		var n int
		var due *time.Time
		var id *int64
		err := s.pool.QueryRow(context.WithoutCancel(ctx), query, messageName, from.due, from.id).Scan(&n, &due, &id)
		switch {
		case err != nil:
			return err
		case n > 0:
			w.did(n)
			from = position{due: *due} // without the id: it is not that of the row with this due time
		case !from.due.IsZero():
			from = position{}
		default:
			select {
			case <-time.After(time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
	return nil
}
