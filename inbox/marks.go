package inbox

import (
	"sync"
	"time"
)

const (
	// rescanEvery is how often a claim starts at the beginning again: rows can
	// appear behind the mark (long accept transactions, a processor that died).
	rescanEvery = time.Second
	// rescanShare spaces rescans by their own cost: at most a tenth of the time.
	rescanShare = 10
	// markSlack is how far behind the last row a mark stays while claims come
	// back short: accepts that overlap commit out of the order of their due times.
	markSlack = time.Second
)

// mark is where the next claim of a name starts: behind (due, id).
type mark struct {
	name string
	due  time.Time // zero: at the beginning
	id   int64
}

// marks is the low-water mark of each name, shared by the workers of a
// processor. Index entries of settled messages stay behind while somebody holds
// an old snapshot; a claim that starts at the mark does not walk them again.
type marks struct {
	mu      sync.Mutex
	byName  map[string]mark
	epoch   int // counts the returns to the beginning
	rescan  time.Time
	planned bool // somebody has been told to come back at the rescan
}

// start returns where to claim. epoch belongs to that view and goes to advance.
func (m *marks) start(names []string, now time.Time) (view []mark, epoch int, rescan bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if rescan = !now.Before(m.rescan); rescan {
		m.forget()
		// Until advance knows the cost.
		m.rescan = now.Add(rescanEvery)
	}
	view = make([]mark, len(names))
	for i, name := range names {
		view[i] = m.byName[name]
		view[i].name = name
	}
	return view, m.epoch, rescan
}

// advance moves the marks behind what was claimed. full says that the claim
// found as many rows as it asked for.
func (m *marks) advance(epoch int, rescan, full bool, claimed []*Claimed, now time.Time, cost time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if rescan {
		m.rescan = now.Add(max(rescanEvery, rescanShare*cost))
	}
	if epoch != m.epoch {
		return // somebody went back to the beginning meanwhile
	}
	for _, c := range claimed {
		next := mark{due: c.due, id: c.ID}
		if !full {
			next = mark{due: c.due.Add(-markSlack)}
		}
		if last := m.byName[c.Name]; next.due.After(last.due) || next.due.Equal(last.due) && next.id > last.id {
			m.byName[c.Name] = next
		}
	}
}

// idle tells a worker that found nothing how long it is until the rescan, once
// per rescan: what became visible behind the marks would otherwise wait for the
// next poll.
func (m *marks) idle(now time.Time) (wait time.Duration, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.byName) == 0 || m.planned {
		return 0, false
	}
	m.planned = true
	return max(m.rescan.Sub(now), 0), true
}

// lower makes sure that messages which are claimable again lie behind the marks.
func (m *marks) lower(again []mark) {
	if len(again) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range again {
		last, ok := m.byName[a.name]
		if ok && (a.due.Before(last.due) || a.due.Equal(last.due) && a.id <= last.id) {
			m.byName[a.name] = mark{due: a.due, id: a.id - 1}
		}
	}
	m.epoch++ // claims that are under way would raise them again
}

// reset goes back to the beginning: rows were given back.
func (m *marks) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget()
}

func (m *marks) forget() {
	m.byName = map[string]mark{}
	m.epoch++
	m.planned = false
}
