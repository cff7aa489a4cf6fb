package inbox_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/inbox/inboxtest"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

var (
	tortureFor  = flag.Duration("torture", 10*time.Second, "how long TestTorture goes on")
	tortureSeed = flag.Uint64("torture.seed", 0, "the schedule of TestTorture; 0: a new one, which it prints")
)

// tortureProcesses is how many processors and how many acceptors there are.
const tortureProcesses = 4

// tortureDrain bounds the time in which the processors catch up at the end: what
// waits behind dead messages has piled up, and those that kill take their time.
const tortureDrain = 3 * time.Minute

const tortureTables = `
CREATE TABLE effects (
	n       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	job     text NOT NULL,
	key     text NOT NULL,
	ord     bigint NOT NULL,
	started timestamptz NOT NULL,
	written timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE forgiven (job text PRIMARY KEY)`

// tortureTruths are what has to be zero at any time, in any snapshot.
const tortureTruths = `
WITH e AS (SELECT job, count(*) AS n FROM effects GROUP BY job),
ordered AS (
	SELECT ord <= lag(ord) OVER w OR started < lag(written) OVER w AS bad
	FROM effects WHERE key <> '' WINDOW w AS (PARTITION BY key ORDER BY n))
SELECT
	(SELECT COALESCE(sum(n - 1), 0) FROM e) AS doubled,
	(SELECT count(*) FROM inbox_messages m LEFT JOIN e ON e.job = m.message_id WHERE m.status = 1 AND e.job IS NULL) AS without,
	(SELECT count(*) FROM inbox_messages m JOIN e ON e.job = m.message_id WHERE m.status <> 1) AS early,
	(SELECT count(*) FROM inbox_messages m LEFT JOIN inbox_queue q ON q.id = m.id
		WHERE (q.id IS NULL) <> (m.status = 1) OR (m.status = 2) <> (q.state = 2)) AS unreachable,
	(SELECT count(*) FROM inbox_queue q WHERE NOT EXISTS (SELECT FROM inbox_messages m WHERE m.id = q.id)) AS orphaned,
	(SELECT count(*) FROM inbox_messages m WHERE (m.attempts > 0 OR m.last_error <> '' OR m.status = 2)
		AND m.message_id NOT LIKE 'dies-%' AND m.message_id NOT LIKE 'fails-%' AND m.message_id NOT LIKE 'kills-%') AS charged,
	(SELECT count(*) FROM ordered WHERE bad) AS disorder`

type truths struct {
	Doubled, Without, Early, Unreachable, Orphaned, Charged, Disorder int
}

// tortureStuck finds those that are parked behind nobody. A claim may hold the
// row of one while it should have been woken; that is made good soon.
const tortureStuck = `
SELECT q.id FROM inbox_queue q WHERE q.state = 1 AND NOT EXISTS (
	SELECT FROM inbox_queue e WHERE e.ordering_key = q.ordering_key AND e.id < q.id)`

// tortureStuckFor is for how long that may be.
const tortureStuckFor = 5 * time.Second

// torturePlace is one torture test.
type torturePlace struct {
	t       *testing.T
	seed    uint64
	gremlin *gremlin
	admin   *node

	checks int
	stuck  map[int64]time.Time // parked behind nobody, since when

	mu       sync.Mutex
	answered [tortureProcesses]int // rounds that were, per acceptor
	stopping string                // the role that is not started again
}

// victim is a child process that is started again whenever it ends.
type victim struct {
	place *torturePlace
	order func() tortured

	mu      sync.Mutex
	cmd     *exec.Cmd
	stdin   io.Closer
	expects bool          // somebody ended it
	delay   time.Duration // before the next start
	done    chan struct{} // closed when it is not started again
}

func (p *torturePlace) start(order func() tortured) *victim {
	v := &victim{place: p, order: order, done: make(chan struct{})}
	go func() {
		defer close(v.done)
		for v.live() {
		}
	}()
	return v
}

// live is one life. It reports whether there is to be another.
func (v *victim) live() bool {
	o := v.order()
	text, err := json.Marshal(o)
	if err != nil {
		v.place.t.Error(err)
		return false
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), tortureEnv+"="+string(text))
	var stderr tail
	cmd.Stderr = &stderr
	stdin, inErr := cmd.StdinPipe()
	stdout, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, cmd.Start()); err != nil {
		v.place.t.Error(err)
		return false
	}
	v.mu.Lock()
	v.cmd, v.stdin, v.expects, v.delay = cmd, stdin, false, 0
	v.mu.Unlock()
	if v.place.isStopping(o.Role) {
		_ = stdin.Close()
	}
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		v.place.hear(o, lines.Text())
	}
	err = cmd.Wait()
	v.mu.Lock()
	expected, delay := v.expects, v.delay
	v.cmd = nil
	v.mu.Unlock()
	if killed(err) && !expected && o.Role == "process" {
		v.place.gremlin.count("killed_by_message")
	} else if err != nil && !(killed(err) && expected) {
		v.place.t.Errorf("a child (%s) ended by itself: %v\n%s", o.Role, err, stderr.String())
	}
	if v.place.isStopping(o.Role) {
		return false
	}
	time.Sleep(delay)
	return true
}

// end sends a signal; the next life begins after delay.
func (v *victim) end(delay time.Duration, signal syscall.Signal) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.cmd == nil {
		return
	}
	v.expects, v.delay = true, delay
	_ = v.cmd.Process.Signal(signal)
}

// finish asks for a clean end and waits for it.
func (v *victim) finish() {
	v.mu.Lock()
	if v.cmd != nil {
		_ = v.stdin.Close()
	}
	v.mu.Unlock()
	<-v.done
}

func (p *torturePlace) isStopping(role string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stopping == role
}

func (p *torturePlace) stop(role string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopping = role
}

// hear understands what an acceptor says.
func (p *torturePlace) hear(o tortured, line string) {
	verb, rest, _ := strings.Cut(line, " ")
	switch n, err := strconv.Atoi(rest); {
	case verb == "ack" && err == nil:
		p.mu.Lock()
		p.answered[o.Acceptor] = n + 1
		p.mu.Unlock()
	case verb == "replay":
		p.gremlin.count("replay")
	default:
		p.t.Errorf("acceptor %d: %s", o.Acceptor, line)
	}
}

// check holds the tables against what is always true. ok is false when the
// database did not answer.
func (p *torturePlace) check(ctx context.Context) (got truths, ok bool) {
	if err := p.admin.db.NewRaw(tortureTruths).Scan(ctx, &got); err != nil {
		return got, false
	}
	if got != (truths{}) {
		p.t.Errorf("seed %d: %+v, want all zero", p.seed, got)
	}
	var stuck []int64
	if err := p.admin.db.NewRaw(tortureStuck).Scan(ctx, &stuck); err != nil {
		return got, false
	}
	since := map[int64]time.Time{}
	for _, id := range stuck {
		first, ok := p.stuck[id]
		if !ok {
			first = time.Now()
		}
		if since[id] = first; time.Since(first) > tortureStuckFor {
			p.t.Errorf("seed %d: message %d is parked behind nobody for %v", p.seed, id, time.Since(first))
		}
	}
	p.stuck = since
	return got, true
}

// watch checks until ctx ends, and is never more than a tenth of the load.
func (p *torturePlace) watch(ctx context.Context) {
	for ctx.Err() == nil && !p.t.Failed() {
		began := time.Now()
		if _, ok := p.check(ctx); ok {
			p.checks++
		}
		_ = sleepFor(ctx, max(300*time.Millisecond, 10*time.Since(began)))
	}
}

func newTorturePlace(t *testing.T, seed uint64) *torturePlace {
	t.Helper()
	server := testdb.StartServer(t, testdb.Config{})
	db, err := testdb.OpenPGX(server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	repo, err := inbox.NewRepository(db, tortured{}.names(), tortured{}.config())
	if err != nil {
		t.Fatal(err)
	}
	if err := repo.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := &torturePlace{t: t, seed: seed, admin: &node{db: db, repo: repo}}
	for statement := range strings.SplitSeq(tortureTables, ";") {
		p.admin.exec(t, statement)
	}
	p.gremlin = &gremlin{
		t: t, random: rand.New(rand.NewPCG(seed, 0)), server: server, admin: p.admin, repo: repo, counts: map[string]int{},
	}
	var dsns []string // one proxy for the processors, one for the acceptors
	for range 2 {
		proxy, through := inboxtest.NewProxy(t, server.DSN())
		p.gremlin.proxies = append(p.gremlin.proxies, proxy)
		dsns = append(dsns, through)
	}
	for i := range tortureProcesses {
		driver := "pgx"
		if i == tortureProcesses-1 {
			driver = "pgdriver"
		}
		p.gremlin.processors = append(p.gremlin.processors, p.start(func() tortured {
			return tortured{Role: "process", Target: target{driver, dsns[0]}}
		}))
		p.gremlin.acceptors = append(p.gremlin.acceptors, p.start(func() tortured {
			p.mu.Lock()
			defer p.mu.Unlock()
			return tortured{Role: "accept", Target: target{driver, dsns[1]}, Seed: seed, Acceptor: i, Round: p.answered[i]}
		}))
	}
	return p
}

// calm has everything finished: acceptors first, then what is left in the queue,
// then the processors.
func (p *torturePlace) calm() {
	p.stop("accept") // a processor that dies meanwhile is started again
	for _, v := range p.gremlin.acceptors {
		v.finish()
	}
	for _, name := range tortureNames {
		if err := p.gremlin.repo.Resume(p.t.Context(), name); err != nil {
			p.t.Errorf("resume: %v", err)
		}
	}
	deadline := time.Now().Add(tortureDrain)
	for left := -1; left != 0; {
		if time.Now().After(deadline) {
			p.t.Errorf("seed %d: %d messages are still unfinished after %v%s", p.seed, left, tortureDrain, p.leftovers())
			break
		}
		if err := p.gremlin.forgive(p.t.Context()); err != nil {
			p.t.Errorf("retry all: %v", err)
		}
		left = p.admin.count(p.t, `SELECT count(*) FROM inbox_queue`)
		time.Sleep(20 * time.Millisecond)
	}
	p.stop("process")
	for _, v := range p.gremlin.processors {
		v.finish()
	}
}

// leftovers describes some of what was not finished.
func (p *torturePlace) leftovers() string {
	var rows []map[string]any
	if err := p.admin.db.NewRaw(`SELECT q.*, m.message_id, m.status, m.last_error, now() AS now
		FROM inbox_queue q LEFT JOIN inbox_messages m ON m.id = q.id ORDER BY q.id LIMIT 5`).Scan(p.t.Context(), &rows); err != nil {
		return err.Error()
	}
	text := ""
	for _, row := range rows {
		text += fmt.Sprintf("\n%v", row)
	}
	return text
}

// lost is how many answered messages have no effect.
func (p *torturePlace) lost() (messages, lost int) {
	var jobs []string
	if err := p.admin.db.NewRaw(`SELECT DISTINCT job FROM effects`).Scan(p.t.Context(), &jobs); err != nil {
		p.t.Fatal(err)
	}
	done := make(map[string]bool, len(jobs))
	for _, job := range jobs {
		done[job] = true
	}
	for acceptor, rounds := range p.answered {
		for n := range rounds {
			for _, e := range (tortured{Seed: p.seed, Acceptor: acceptor}).round(n) {
				if messages++; !done[e.MessageID] {
					p.t.Errorf("%s was answered and has no effect", e.MessageID)
					lost++
				}
			}
		}
	}
	return messages, lost
}

// TestTorture runs processes of both kinds on a real server while a gremlin is at
// work, and checks all the while that no message is lost, doubled, out of order or
// charged for what others did.
func TestTorture(t *testing.T) {
	seed := *tortureSeed
	if seed == 0 {
		seed = rand.Uint64N(1<<32) + 1
	}
	t.Logf("go test ./inbox -run Torture -torture=%v -torture.seed=%d", *tortureFor, seed)
	p := newTorturePlace(t, seed)
	ctx, cancel := context.WithTimeout(t.Context(), *tortureFor)
	defer cancel()
	var work sync.WaitGroup
	work.Go(func() { p.watch(ctx) })
	p.gremlin.haunt(ctx)
	work.Wait()
	p.calm()

	got, ok := p.check(t.Context())
	if !ok {
		t.Error("the database does not answer at the end")
	}
	messages, lost := p.lost()
	line, err := json.Marshal(struct {
		Messages   int            `json:"messages"`
		Effects    int            `json:"effects"`
		Doubled    int            `json:"duplicate_effects"`
		Lost       int            `json:"lost"`
		Violations int            `json:"order_violations"`
		Faults     map[string]int `json:"faults"`
	}{messages, p.admin.count(t, `SELECT count(*) FROM effects`), got.Doubled, lost, got.Disorder, p.gremlin.counts})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(string(line))
	t.Logf("%d checks; %d crashes were noticed by other processors", p.checks,
		p.admin.count(t, `SELECT count(*) FROM inbox_processors WHERE cautious_until IS NOT NULL`))
	if messages == 0 || p.checks == 0 {
		t.Errorf("%d messages were accepted, and %d checks made meanwhile", messages, p.checks)
	}
}

// tail keeps the end of what is written to it.
type tail struct{ text []byte }

func (w *tail) Write(p []byte) (int, error) {
	w.text = append(w.text, p...)
	w.text = w.text[max(0, len(w.text)-8000):]
	return len(p), nil
}

func (w *tail) String() string { return string(w.text) }
