package main

import "context"

// growthCases compare the same work with and without something in the tables.
func growthCases(b *bench) []*benchCase {
	all := []*benchCase{
		historyCase("growth-1m", "as drain-each-32, with 1 M processed rows kept", func(b *bench) int { return b.scale.history }),
		historyAcceptCase("growth-1m-accept", "as accept-single-16, with 1 M processed rows kept", func(b *bench) int { return b.scale.history }),
		{
			name: "growth-junk", about: "as drain-each-32, behind 200,000 dead, 200,000 scheduled and 50,000 foreign rows",
			build: func(ctx context.Context, b *bench) ([]contender, error) {
				d, err := b.drainOf(ctx, letterboxPeer, b.scale.rows, 32, false)
				if err != nil {
					return nil, err
				}
				return withBaseline(d, func(d *drain) { d.grow = junk(b.scale.junk) }), nil
			},
		},
		{
			name: "growth-snapshot", about: "batches of 100 from a backlog of 300,000, under a held snapshot", rounds: 3,
			build: func(ctx context.Context, b *bench) ([]contender, error) {
				d, err := b.drainOf(ctx, letterboxPeer, b.scale.backlog, 100, true)
				if err != nil {
					return nil, err
				}
				d.load = loadQuickly
				return withBaseline(d, func(d *drain) { d.beside = holdSnapshot }), nil
			},
		},
		{
			name: "growth-sweep", about: "as drain-each-32, while old messages are swept",
			build: func(ctx context.Context, b *bench) ([]contender, error) {
				d, err := b.drainOf(ctx, letterboxPeer, b.scale.rows, 32, false)
				if err != nil {
					return nil, err
				}
				d.load = func(ctx context.Context, o *opened, messages []message) error {
					// A sweep goes from old to young: what is there becomes old first.
					if _, err := o.db.pool.Exec(ctx, ageProcessed); err != nil {
						return err
					}
					if _, err := o.db.pool.Exec(ctx, growProcessed, b.scale.junk); err != nil {
						return err
					}
					return acceptAll(ctx, o, messages)
				}
				return withBaseline(d, func(d *drain) { d.beside = sweepBeside }), nil
			},
		},
	}
	if b.growth10m {
		ten := func(b *bench) int { return 10 * b.scale.history }
		all = append(all,
			historyCase("growth-10m", "as drain-each-32, with 10 M processed rows kept", ten),
			historyAcceptCase("growth-10m-accept", "as accept-single-16, with 10 M processed rows kept", ten))
	}
	return all
}

func historyCase(name, about string, rows func(*bench) int) *benchCase {
	return &benchCase{name: name, about: about, build: func(ctx context.Context, b *bench) ([]contender, error) {
		d, err := b.drainOf(ctx, letterboxPeer, b.scale.rows, 32, false)
		if err != nil {
			return nil, err
		}
		return withBaseline(d, func(d *drain) { d.grow = history(rows(b)) }), nil
	}}
}

func historyAcceptCase(name, about string, rows func(*bench) int) *benchCase {
	return &benchCase{name: name, about: about, build: func(_ context.Context, b *bench) ([]contender, error) {
		a := accept{bench: b, name: letterboxPeer, n: b.scale.accepts, callers: 16, size: 1}
		base := a
		base.baseline = true
		a.grow = history(rows(b))
		return []contender{base.contender(), a.contender()}, nil
	}}
}
