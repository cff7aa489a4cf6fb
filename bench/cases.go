package main

import "context"

// allCases returns every case, in the order they are run and reported.
func allCases(b *bench) (all []*benchCase) {
	all = append(all, acceptCases()...)
	all = append(all, drainCases()...)
	all = append(all, latencyCases(b)...)
	all = append(all, growthCases(b)...)
	all = append(all, sqliteCases()...)
	return append(all, memoryCases()...)
}

var (
	inTables     = []string{letterboxPeer, byHandPeer}
	acceptors    = []string{letterboxPeer, byHandPeer, byHandBunPeer, riverPeer, guePeer, watermillPeer, watermillQueuePeer}
	processors   = []string{letterboxPeer, letterboxBunPeer, byHandPeer, byHandBunPeer, riverPeer, riverTunedPeer, guePeer, watermillPeer, watermillQueuePeer}
	latencyPeers = []string{letterboxPeer, togetherPeer, byHandPeer, riverPeer, riverTunedPeer, guePeer, watermillPeer, watermillQueuePeer}
)

func acceptCases() (all []*benchCase) {
	single := func(name string, callers int, share float64, repeats bool, peers ...string) {
		about := "one message a call"
		if repeats {
			about += ", every second one a duplicate"
		}
		all = append(all, &benchCase{name: name, about: about, limit: byHandPeer, build: func(_ context.Context, b *bench) ([]contender, error) {
			return b.acceptors(share, accept{callers: callers, size: 1, repeats: repeats}, peers...), nil
		}})
	}
	batch := func(name string, repeats bool, peers ...string) {
		all = append(all, &benchCase{name: name, about: "100 messages a call, one caller", limit: byHandPeer, build: func(_ context.Context, b *bench) ([]contender, error) {
			return b.acceptors(2.5, accept{callers: 1, size: 100, repeats: repeats}, peers...), nil
		}})
	}
	single("accept-single-1", 1, 0.2, false, acceptors...)
	single("accept-single-16", 16, 1, false, acceptors...)
	single("accept-single-64", 64, 1, false, acceptors...)
	batch("accept-batch-100", false, acceptors...)
	// The others store a duplicate once more.
	single("accept-single-16-duplicates", 16, 1, true, letterboxPeer, byHandPeer, riverPeer)
	batch("accept-batch-100-duplicates", true, letterboxPeer, byHandPeer, riverPeer)
	return append(all, &benchCase{
		name: "accept-wakeups", about: "as accept-single-16, with wake-ups of other processes, to those without",
		build: func(_ context.Context, b *bench) ([]contender, error) {
			a := accept{bench: b, name: letterboxPeer, n: b.scale.accepts, callers: 16, size: 1}
			base := a
			base.baseline = true
			a.peer = &letterbox{apart: true, listening: true}
			return []contender{base.contender(), a.contender()}, nil
		},
	})
}

// acceptors are contenders that differ in the peer only.
func (b *bench) acceptors(share float64, a accept, peers ...string) (all []contender) {
	for _, name := range peers {
		a.bench, a.name, a.peer = b, name, nil
		a.n = rounded(float64(b.scale.accepts)*share, a.size)
		if name == riverPeer {
			a.n = rounded(float64(a.n)*0.4, a.size)
			if a.repeats {
				a.peer = &riverQueue{unique: true}
			}
		}
		all = append(all, a.contender())
	}
	return all
}

// rounded returns n as a multiple of size, and of two of them.
func rounded(n float64, size int) int { return max(int(n)/(2*size), 1) * 2 * size }

func drainCases() []*benchCase {
	each := func(name string, batch int, share float64, peers ...string) *benchCase {
		return &benchCase{name: name, about: "full backlog, per-message handler", limit: byHandPeer, build: func(ctx context.Context, b *bench) ([]contender, error) {
			return b.drains(ctx, share, batch, false, peers...)
		}}
	}
	all := []*benchCase{
		each("drain-each-1", 1, 0.25, letterboxPeer, byHandPeer, byHandBunPeer, watermillPeer),
		each("drain-each-32", 32, 1, processors...),
		each("drain-each-100", 100, 1, letterboxPeer, byHandPeer, byHandBunPeer, watermillPeer, watermillQueuePeer),
		{
			name: "drain-batch-100", about: "full backlog, one handler call per batch", limit: setBasedPeer,
			build: func(ctx context.Context, b *bench) (all []contender, err error) {
				for _, name := range []string{letterboxPeer, letterboxBunPeer, byHandPeer, byHandBunPeer, setBasedPeer} {
					d, err := b.drainOf(ctx, name, 5*b.scale.rows, 100, true)
					if err != nil {
						return nil, err
					}
					d.load = loadQuickly
					all = append(all, d.contender())
				}
				// It has no batch handler: its best, for comparison.
				watermill, err := b.drains(ctx, 1, 100, false, watermillPeer)
				return append(all, watermill...), err
			},
		},
	}
	for _, workers := range []struct {
		name string
		n    int
	}{{"workers-1", 1}, {"workers-4", 4}, {"workers-16", 16}} {
		all = append(all, &benchCase{
			name: workers.name, about: "as drain-each-32, with so many workers", limit: byHandPeer,
			build: func(_ context.Context, b *bench) (all []contender, err error) {
				for _, name := range []string{letterboxPeer, byHandPeer, riverTunedPeer, guePeer, watermillPeer} {
					d := b.drainWith(name, b.scale.rows, 32, false)
					d.how.workers = workers.n
					if name != letterboxPeer && name != byHandPeer {
						d.n = max(d.n/4, 20)
					}
					all = append(all, d.contender())
				}
				return all, nil
			},
		})
	}
	return append(all, orderingCases()...)
}

// drains are contenders at the settings that serve each best.
func (b *bench) drains(ctx context.Context, share float64, batch int, many bool, peers ...string) (all []contender, err error) {
	for _, name := range peers {
		d, err := b.drainOf(ctx, name, int(float64(b.scale.rows)*share), batch, many)
		if err != nil {
			return nil, err
		}
		all = append(all, d.contender())
	}
	return all, nil
}

// orderingCases compare messages with ordering keys to the same without.
func orderingCases() (all []*benchCase) {
	for _, keyed := range []struct {
		name, about string
		keys        int
		share       float64
	}{
		{"drain-keys-1000", "as drain-each-32, 1,000 ordering keys", 1000, 1},
		{"drain-key-hot", "as drain-each-32, every message has the same ordering key", 1, 0.5},
	} {
		all = append(all, &benchCase{name: keyed.name, about: keyed.about, build: func(ctx context.Context, b *bench) ([]contender, error) {
			d, err := b.drainOf(ctx, letterboxPeer, int(float64(b.scale.rows)*keyed.share), 32, false)
			if err != nil {
				return nil, err
			}
			return withBaseline(d, func(d *drain) { d.keys = keyed.keys }), nil
		}})
	}
	return all
}

// withBaseline returns d as it is for a baseline, and d as changed.
func withBaseline(d drain, change func(*drain)) []contender {
	base := d
	base.baseline = true
	change(&d)
	return []contender{base.contender(), d.contender()}
}

func latencyCases(b *bench) (all []*benchCase) {
	for _, at := range []struct {
		name string
		rate int
	}{{"latency-50", 50}, {"latency-500", 500}} {
		all = append(all, &benchCase{
			name: at.name, about: "accept to effect, messages arriving steadily", limit: byHandPeer, rounds: b.scale.latencyRounds,
			build: func(_ context.Context, b *bench) (all []contender, err error) {
				for _, name := range latencyPeers {
					l := latency{bench: b, name: name, rate: at.rate, how: latencySettings(b.profiles[name], name)}
					switch name {
					case letterboxPeer:
						l.peer = &letterbox{apart: true}
					case byHandPeer:
						l.peer = &byHand{wake: true}
					}
					all = append(all, l.contender())
				}
				return all, nil
			},
		})
	}
	return all
}

// latencySettings: this library and river with their defaults, the others tuned.
func latencySettings(p profile, name string) settings {
	switch name {
	case letterboxPeer, togetherPeer:
		return settings{}
	case byHandPeer:
		return settings{workers: 1, batch: 32}
	case riverTunedPeer:
		return settings{workers: 16}
	case guePeer:
		return settings{workers: 4, poll: p.poll}
	}
	return settings{workers: p.workers[0], batch: p.batch, poll: p.poll}
}

func sqliteCases() []*benchCase {
	all := []*benchCase{{
		name: "sqlite-32", about: "drain on SQLite in WAL mode, batch 32", limit: byHandPeer,
		build: func(_ context.Context, b *bench) (all []contender, err error) {
			for _, p := range sqlitePeers {
				all = append(all, sqliteDrain(p.name, p.process, b.scale.rows, settings{workers: 1, batch: 32}))
			}
			return all, nil
		},
	}}
	for _, at := range []struct {
		name string
		rate int
	}{{"sqlite-latency-50", 50}, {"sqlite-latency-500", 500}} {
		all = append(all, &benchCase{
			name: at.name, about: "accept to effect on SQLite, one process", limit: byHandPeer, rounds: 1,
			build: func(_ context.Context, b *bench) (all []contender, err error) {
				for _, p := range sqlitePeers {
					all = append(all, sqliteLatency(p.name, p.process, at.rate, b.scale))
				}
				return all, nil
			},
		})
	}
	return all
}

func memoryCases() []*benchCase {
	return []*benchCase{
		{
			name: "rss-200k", about: "peak memory of a process that drains 200,000 messages", limit: byHandPeer, rounds: 1,
			build: func(_ context.Context, b *bench) (all []contender, err error) {
				for _, name := range inTables {
					all = append(all, b.memory(name, b.scale.memory, settings{workers: 4, batch: 32}))
				}
				return all, nil
			},
		},
		{
			name: "disk-per-message", about: "tables and indexes per processed message that is kept", rounds: 1,
			build: func(_ context.Context, b *bench) ([]contender, error) {
				d := b.drainWith(letterboxPeer, b.scale.rows, 32, false)
				d.how.workers = 4
				return []contender{b.disk(d)}, nil
			},
		},
	}
}
