package telemetry_test

import (
	"context"
	"sync/atomic"

	"github.com/uptrace/bun"
)

// queries counts statements.
type queries struct{ n atomic.Int64 }

func (q *queries) BeforeQuery(ctx context.Context, _ *bun.QueryEvent) context.Context { return ctx }
func (q *queries) AfterQuery(context.Context, *bun.QueryEvent)                        { q.n.Add(1) }
