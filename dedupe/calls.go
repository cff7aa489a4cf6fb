package dedupe

import (
	"context"
	"sync"
)

// calls are the keys that this process works on.
type calls struct {
	mu    sync.Mutex
	byKey map[Key]*call
}

// call is one leading call; the others for its key wait until it has ended.
type call struct {
	ended chan struct{}
	done  bool // the key needs no run any more; read after ended
}

// join returns the call for the key; first says that it is the caller's own.
func (c *calls) join(id Key) (joined *call, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if joined, ok := c.byKey[id]; ok {
		return joined, false
	}
	if c.byKey == nil {
		c.byKey = map[Key]*call{}
	}
	joined = &call{ended: make(chan struct{})}
	c.byKey[id] = joined
	return joined, true
}

func (c *calls) leave(id Key, call *call) {
	c.mu.Lock()
	delete(c.byKey, id)
	c.mu.Unlock()
	close(call.ended)
}

// nested is what the context of fn carries: the keys that it runs for.
type nested struct {
	guard *Guard
	key   Key
	outer *nested
}

type nestedKey struct{}

func nest(ctx context.Context, g *Guard, id Key) context.Context {
	outer, _ := ctx.Value(nestedKey{}).(*nested)
	return context.WithValue(ctx, nestedKey{}, &nested{g, id, outer})
}

func isNested(ctx context.Context, g *Guard, id Key) bool {
	n, _ := ctx.Value(nestedKey{}).(*nested)
	for ; n != nil; n = n.outer {
		if n.guard == g && n.key == id {
			return true
		}
	}
	return false
}
