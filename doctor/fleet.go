package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun/dialect"

	"github.com/letterbox-go/letterbox/inbox"
)

const (
	// crashedWithin is how far back crashes matter.
	crashedWithin = time.Hour
	// crashLoop is how many in that time are more than bad luck.
	crashLoop = 3
	// beside is how many connections a processor needs beside its workers': one
	// for the heartbeat, one for whatever else the program does.
	beside = 2
)

func (e *examination) alive() (n int) {
	for _, p := range e.processors {
		if p.Alive {
			n++
		}
	}
	return n
}

// crashed looks at the processors, and at those that ended without a farewell.
func (e *examination) crashed() {
	var running, gone []string
	for _, p := range e.processors {
		line := describe(p)
		switch {
		case p.Alive:
			running = append(running, line)
		case e.now.Sub(p.SeenAt) < crashedWithin:
			gone = append(gone, line)
		}
	}
	if len(running) > 0 {
		e.find("processors", Info, plural(int64(len(running)), "processor")+" running", "", running...)
	}
	if len(gone) == 0 {
		return
	}
	severity, title := Warning, plural(int64(len(gone)), "processor")+" ended without a farewell within the last hour"
	if len(gone) >= crashLoop {
		severity, title = Critical, "Processors crash again and again: "+title
	}
	e.find("crashed-processors", severity, title,
		"Read the log of that host: out of memory, a crash, a kill without SIGTERM, or no way to the database. "+
			"A message that kills its process is dead after a few crashes; until then messages run one at a time.", gone...)
}

func describe(p inbox.ProcessorInfo) string {
	return fmt.Sprintf("%s pid %d, %s, %s, started %s, last seen %s",
		quote(p.Host), p.PID, plural(int64(p.Workers), "worker"), plural(int64(len(p.Names)), "name"), at(&p.StartedAt), at(&p.SeenAt))
}

// pool compares the program's own pool with its workers.
func (e *examination) pool(context.Context) error {
	limit := e.db.Stats().MaxOpenConnections
	need := e.config.Workers + beside
	if e.config.Workers == 0 || limit == 0 || limit >= need || e.db.Dialect().Name() != dialect.PG {
		return nil
	}
	e.find("small-pool", Warning, "The connection pool is smaller than the workers need",
		fmt.Sprintf("SetMaxOpenConns(%d) or more: one connection per worker, one for the heartbeat, and those of handlers and acceptors in the same program.", need),
		fmt.Sprintf("%d connections at most, %d workers", limit, e.config.Workers))
	return nil
}

// connections compares the fleet with what the server allows.
func (e *examination) connections(ctx context.Context) error {
	var server struct{ Most, Used int64 }
	if err := e.scan(ctx, &server, postgresConnections); err != nil {
		return err
	}
	var fleet int64
	for _, p := range e.processors {
		if p.Alive {
			fleet += int64(p.Workers) + beside
		}
	}
	evidence := []string{
		fmt.Sprintf("the server allows %d connections to ordinary roles, %d are open", server.Most, server.Used),
		fmt.Sprintf("running processors need %d", fleet),
	}
	if fleet > server.Most {
		e.find("connections", Warning, "The processors together need more connections than the server allows",
			"Fewer workers or processors, a larger max_connections, or a pooler in transaction mode.", evidence...)
	} else if 10*server.Used > 9*server.Most {
		e.find("connections", Warning, "The server is almost out of connections",
			"Close what is idle, use a pooler, or raise max_connections.", evidence...)
	}
	return nil
}
