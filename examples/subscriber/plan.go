package main

import (
	"fmt"
	"math/rand/v2"
)

// foreign is what a producer without Watermill sends: an id where the broker's own
// clients put it (or a CloudEvent's), and a body. No name: the topic has one type.
type foreign struct{ id, body string }

// plan is who sends what, and what has to come out.
type plan struct {
	ours    []foreign // sent through a Watermill publisher, id as UUID
	foreign []foreign // sent with the broker's own client

	orders, refused, unreadable int
}

// newPlan lets two producers send n messages each, every one of them one to three
// times, in another order each time it is run. Both use the same ids: they are
// different messages, since they have different sources.
func newPlan(n int) plan {
	var p plan
	for i := range n {
		for producer, out := range map[string]*[]foreign{"ours": &p.ours, "foreign": &p.foreign} {
			order := foreign{fmt.Sprintf("order-%03d", i), fmt.Sprintf(`{"producer":%q,"number":%d}`, producer, i)}
			for range 1 + rand.IntN(3) {
				*out = append(*out, order)
			}
			p.orders++
		}
	}
	// One order that the handler refuses for good, and messages nobody can accept:
	// no id, a blank one, and a body that is no order.
	p.foreign = append(p.foreign, foreign{"order-refused", `{"producer":"foreign","number":-1}`})
	p.refused++
	p.foreign = append(p.foreign,
		foreign{"", `{"producer":"foreign","number":1}`}, foreign{" ", `{"producer":"foreign","number":2}`}, foreign{"order-unreadable", `{"number":"one"`})
	p.unreadable += 3
	rand.Shuffle(len(p.ours), func(i, j int) { p.ours[i], p.ours[j] = p.ours[j], p.ours[i] })
	rand.Shuffle(len(p.foreign), func(i, j int) { p.foreign[i], p.foreign[j] = p.foreign[j], p.foreign[i] })
	return p
}

func (p plan) deliveries() int { return len(p.ours) + len(p.foreign) }
func (p plan) distinct() int   { return p.orders + p.refused + p.unreadable }
