package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

//go:generate go run ./internal/generate data
//go:embed data/notifications.jsonl
var notificationsFile string

const (
	mostDeliveries = 4 // of one notification
	mostPerRequest = 6
	planSeed       = 42
)

// request is one HTTP request of the provider, and how it has to be answered.
type request struct {
	body      string
	mediaType string
	items     int // notifications in it; 0 in one that is refused
	status    int
}

// plan is what the provider sends, and what must have come of it: both from the
// data files alone.
type plan struct {
	before []request // 8 clients at once
	after  []request // the same, once all of before are answered
	want   books
}

// line is one of the file, read with nothing of what is being shown.
type line struct {
	raw   string
	id    string
	chave string
	cents int64
}

func readLines() ([]line, error) {
	var lines []line
	for raw := range strings.Lines(notificationsFile) {
		raw = strings.TrimSuffix(raw, "\n")
		var item struct{ EndToEndID, Chave, Valor string }
		if err := json.Unmarshal([]byte(raw), &item); err != nil {
			return nil, fmt.Errorf("notifications file: %w", err)
		}
		cents, err := strconv.ParseInt(strings.Replace(item.Valor, ".", "", 1), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("notifications file: %w", err)
		}
		lines = append(lines, line{raw, item.EndToEndID, item.Chave, cents})
	}
	return lines, nil
}

// newPlan is the same in each run.
func newPlan() (*plan, error) {
	lines, err := readLines()
	if err != nil {
		return nil, err
	}
	accounts, err := readAccounts()
	if err != nil {
		return nil, err
	}
	want := books{Balances: map[string]int64{}}
	for _, a := range accounts {
		want.Balances[a.Chave] = 0
	}
	random := rand.New(rand.NewPCG(planSeed, planSeed))
	var originals, changed []parcel
	for _, l := range lines {
		p := parcel{l.id, copies(random, l.raw)}
		want.Deliveries += p.size()
		if slices.ContainsFunc(originals, p.sameID) {
			changed = append(changed, p)
			want.Mismatches += p.size()
		} else {
			originals = append(originals, p)
			want.expect(l)
		}
	}
	want.Duplicates = want.Deliveries - want.Stored - want.Mismatches
	bad := badRequests(lines[0].raw)
	want.Rejected = len(bad)

	// What comes with another content comes after the original: the first counts.
	var early, rest, late [][]string
	for _, p := range originals {
		if slices.ContainsFunc(changed, p.sameID) {
			early = append(early, p.groups...)
		} else {
			rest = append(rest, p.groups...)
		}
	}
	for _, p := range changed {
		late = append(late, p.groups...)
	}
	shuffle(random, rest)
	most := len(rest) * 4 / 5
	plan := &plan{
		before: append(requests(random, append(early, rest[:most]...)), bad...),
		after:  requests(random, append(late, rest[most:]...)),
		want:   want,
	}
	shuffle(random, plan.before)
	return plan, nil
}

// parcel holds the copies of a notification that are delivered. Those in one
// group travel in one request.
type parcel struct {
	id     string
	groups [][]string
}

func (p parcel) sameID(other parcel) bool { return p.id == other.id }

func (p parcel) size() (n int) {
	for _, group := range p.groups {
		n += len(group)
	}
	return n
}

// copies makes one to four.
func copies(random *rand.Rand, raw string) [][]string {
	n := 1 + random.IntN(mostDeliveries)
	var groups [][]string
	if n >= 2 && random.IntN(4) == 0 {
		groups = append(groups, []string{raw, raw})
		n -= 2
	}
	for range n {
		groups = append(groups, []string{raw})
	}
	return groups
}

func shuffle[T any](random *rand.Rand, all []T) {
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
}

// requests packs the groups into webhook bodies of several sizes.
func requests(random *rand.Rand, groups [][]string) []request {
	shuffle(random, groups)
	var out []request
	for len(groups) > 0 {
		n := min(1+random.IntN(mostPerRequest), len(groups))
		items := slices.Concat(groups[:n]...)
		groups = groups[n:]
		more := ""
		if n == 1 {
			more = `,"lote":{"id":"9007199254740993"}` // a field that nobody knows
		}
		out = append(out, request{
			body:      `{"pix":[` + strings.Join(items, ",") + `]` + more + `}`,
			mediaType: "application/json",
			items:     len(items),
			status:    http.StatusAccepted,
		})
	}
	return out
}

// badRequests are refused as a whole. Where they hold a good notification, it
// has an id that no other has: if it were stored, the counts would tell.
func badRequests(raw string) []request {
	const fresh = `{"endToEndId":"E99999999202601010000neverStored","txid":"t1","valor":"1.00","horario":"2026-01-01T00:00:00Z","chave":"ana@example.com"}`
	with := func(from, to string) string { return strings.Replace(fresh, from, to, 1) }
	refused := func(status int, bodies ...string) (out []request) {
		for _, body := range bodies {
			out = append(out, request{body: body, mediaType: "application/json", status: status})
		}
		return out
	}
	list := func(items ...string) string { return `{"pix":[` + strings.Join(items, ",") + `]}` }
	return slices.Concat(
		refused(http.StatusBadRequest,
			``,
			`pix`,
			list(fresh)[:100],
			list(fresh)+list(fresh),
			strings.Replace(list(fresh), "t1", "\xff", 1)),
		refused(http.StatusUnprocessableEntity,
			`{}`,
			`[]`,
			`{"pix":null}`,
			`{"pix":{}}`,
			list(fresh, `null`),
			list(fresh, with(`"1.00"`, `1.00`)),
			list(fresh, with(`"1.00"`, `"1e2"`)),
			list(fresh, with(`"1.00"`, `"1.0"`)),
			list(fresh, with(`202601010000`, `202602300000`)),
			list(raw, with(`"ana@example.com"`, `"a\u0000"`))),
		refused(http.StatusRequestEntityTooLarge, list(fresh)+strings.Repeat(" ", maxBody)),
		[]request{{body: list(fresh), mediaType: "text/plain", status: http.StatusUnsupportedMediaType}},
	)
}
