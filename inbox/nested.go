package inbox

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"
)

// nested are the nested transactions of one handler call.
type nested struct {
	count int // opened so far, for their names
	open  []*savepoint
	inner map[string]int // bun's own savepoints inside them, and count when they were opened
	left  bool           // some were open when the handler returned
}

// savepoint is one nested transaction.
type savepoint struct {
	name   string
	number int
	ctx    context.Context // database/sql rolls back when it ends
	ended  chan struct{}
}

// savepoint opens a nested transaction of the handler. end releases it or
// rolls back to it; it works after the handler's context is gone.
func (g *guard) savepoint(ctx context.Context) (end func(commit bool) error, err error) {
	g.mu.Lock()
	g.nested.count++
	s := &savepoint{
		name:   fmt.Sprintf("%snested_%d", ownSavepoint, g.nested.count),
		number: g.nested.count,
		ctx:    ctx,
		ended:  make(chan struct{}),
	}
	g.mu.Unlock()
	if err := g.own(ctx, false, "SAVEPOINT "+s.name); err != nil {
		return nil, err
	}
	g.mu.Lock()
	g.nested.open = append(g.nested.open, s)
	g.mu.Unlock()
	return func(commit bool) error {
		ctx, cancel := detached(ctx)
		defer cancel()
		defer g.forget(s)
		release := "RELEASE SAVEPOINT " + s.name
		var err error
		if commit {
			if err = g.own(ctx, false, release); err == nil {
				return nil
			}
		}
		if undo := g.own(ctx, true, "ROLLBACK TO SAVEPOINT "+s.name); undo != nil {
			if err == nil {
				err = undo
			}
			return err
		}
		g.undoInner(s)
		if undo := g.own(ctx, false, release); err == nil {
			err = undo
		}
		return err
	}, nil
}

func (g *guard) forget(s *savepoint) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.nested.open = slices.DeleteFunc(g.nested.open, func(other *savepoint) bool { return other == s })
	close(s.ended)
}

// own sends a statement of ours on the handler's behalf.
func (g *guard) own(ctx context.Context, rollback bool, query string) error {
	if err := g.admit(ctx, rollback, nil); err != nil {
		return err
	}
	_, err := g.tx.ExecContext(ctx, query)
	g.leave(ctx, rollback, err)
	return err
}

// awaitRollbacks waits for the rollback of nested transactions whose context has
// ended: database/sql sends it in the background, and a statement that overtook
// it would be undone with them.
func (g *guard) awaitRollbacks(limit time.Duration) {
	g.mu.Lock()
	open := slices.Clone(g.nested.open)
	g.mu.Unlock()
	for _, s := range open {
		if s.ctx.Err() == nil {
			continue
		}
		timer := time.NewTimer(limit)
		select {
		case <-s.ended:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// follow watches the savepoints of bun's nested transactions inside ours. When
// their context has ended, bun sends no ROLLBACK TO and reports nothing.
func (g *guard) follow(query string) {
	verb, name, ok := strings.Cut(query, "SAVEPOINT SP_")
	if !ok {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch verb {
	case "":
		if g.nested.inner == nil {
			g.nested.inner = map[string]int{}
		}
		g.nested.inner[name] = g.nested.count
	case "RELEASE ", "ROLLBACK TO ":
		delete(g.nested.inner, name)
	}
}

// undoInner forgets the savepoints that were undone together with s.
func (g *guard) undoInner(s *savepoint) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, number := range g.nested.inner {
		if number >= s.number {
			delete(g.nested.inner, name)
		}
	}
}

// outer is the way through a guard from outside of its nested transactions.
type outer struct{ *guard }

func (o outer) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	o.awaitRollbacks(endTimeout)
	return o.guard.ExecContext(ctx, query, args...)
}

func (o outer) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	o.awaitRollbacks(endTimeout)
	return o.guard.QueryContext(ctx, query, args...)
}

func (o outer) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	o.awaitRollbacks(endTimeout)
	return o.guard.QueryRowContext(ctx, query, args...)
}
