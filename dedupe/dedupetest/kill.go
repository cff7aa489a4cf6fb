package dedupetest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/dedupe"
)

// The environment of a child process: where it has to die, the store's place,
// and the file that stands for the effect outside of the database.
const (
	envStep    = "DEDUPETEST_KILL"
	envPlace   = "DEDUPETEST_PLACE"
	envEffects = "DEDUPETEST_EFFECTS"
)

// killLease is what a dead process leaves behind.
const killLease = 2 * time.Second

// killSteps are the moments between the steps of a run, in their order, and the
// effects that are there then.
var killSteps = []struct {
	name    string
	effects int
	known   bool // the store knows of the success
}{
	{"before the reservation", 0, false},
	{"after the reservation", 0, false},
	{"in fn before its effect", 0, false},
	{"in fn after its effect", 1, false},
	{"after fn before the confirmation", 1, false},
	{"after the confirmation", 1, true},
}

// RunKilled kills a process between every two steps of a run and lets another one
// go on with the same key: the effect is never lost, it is there at most once
// more than without the crash, and from then on the key is remembered.
//
// place makes an empty store that outlives a process and says where it is; open
// opens it, here and in the child process, which is this test binary once more.
func RunKilled(t *testing.T, place func(t *testing.T) string, open func(t *testing.T, place string) dedupe.Store) {
	if step := os.Getenv(envStep); step != "" {
		die(t, step, open(t, os.Getenv(envPlace)))
		return
	}
	for _, step := range killSteps {
		t.Run("killed "+step.name, func(t *testing.T) {
			t.Parallel()
			where := place(t)
			effects := t.TempDir() + "/effects"
			runChild(t, step.name, where, effects)
			if got := countLines(t, effects); got != step.effects {
				t.Fatalf("%d effects at the time of death, want %d", got, step.effects)
			}
			survive(t, open(t, where), effects, step.effects, step.known)
		})
	}
}

// survive calls Do as the process that gets the redelivery.
func survive(t *testing.T, store dedupe.Store, effects string, before int, known bool) {
	guard := newGuard(t, store, dedupe.Config{Lease: killLease})
	for _, want := range []bool{!known, false} {
		ran, err := guard.Do(patient(t), "scope", "a", func(context.Context) error { return addLine(effects) })
		if err != nil || ran != want {
			t.Fatalf("got %v, %v; want ran %v", ran, err, want)
		}
	}
	want := before
	if !known {
		want++
	}
	got := countLines(t, effects)
	if got != want {
		t.Errorf("%d effects, want %d", got, want)
	}
	if got < 1 || got > 2 {
		t.Errorf("%d effects: lost, or more than one extra run", got)
	}
	if stats := newGuardStats(t, store); stats.Runs != 0 || stats.Duplicates != 1 {
		t.Errorf("a third process: %+v", stats)
	}
}

// newGuardStats asks as a process with an empty cache.
func newGuardStats(t *testing.T, store dedupe.Store) dedupe.Stats {
	guard := newGuard(t, store, dedupe.Config{})
	if _, err := guard.Do(patient(t), "scope", "a", func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
	return guard.Stats()
}

// runChild runs this test in a child process and waits for its violent end.
func runChild(t *testing.T, step, place, effects string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent, _, _ := strings.Cut(t.Name(), "/killed_") // the test that calls RunKilled
	var pattern []string
	for name := range strings.SplitSeq(parent, "/") {
		pattern = append(pattern, "^"+name+"$")
	}
	cmd := exec.CommandContext(patient(t), self, "-test.run="+strings.Join(pattern, "/"), "-test.count=1", "-test.v")
	cmd.Env = append(os.Environ(), envStep+"="+step, envPlace+"="+place, envEffects+"="+effects)
	output, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ProcessState.ExitCode() != -1 { // -1: by a signal
		t.Fatalf("the child process was to be killed: %v\n%s", err, output)
	}
	if !strings.Contains(string(output), diesAt(step)) {
		t.Fatalf("the child process died elsewhere:\n%s", output)
	}
}

func diesAt(step string) string { return "child dies " + step }

// die runs the key in the child process, up to the step.
func die(t *testing.T, step string, store dedupe.Store) {
	at := func(here string) {
		if here == step {
			fmt.Println(diesAt(step))
			kill()
		}
	}
	effects := os.Getenv(envEffects)
	guard := newGuard(t, &deadly{store, at}, dedupe.Config{Lease: killLease})
	ran, err := guard.Do(patient(t), "scope", "a", func(context.Context) error {
		at("in fn before its effect")
		if err := addLine(effects); err != nil {
			return err
		}
		at("in fn after its effect")
		return nil
	})
	t.Fatalf("survived %q: %v, %v", step, ran, err)
}

// kill ends this process as SIGKILL does, with nothing cleaned up.
func kill() {
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	if err != nil {
		panic(err)
	}
	select {}
}

// deadly is a store between whose steps the process dies.
type deadly struct {
	dedupe.Store
	at func(step string)
}

func (d *deadly) Reserve(ctx context.Context, key dedupe.Key, token string, lease time.Duration) (dedupe.Reservation, error) {
	d.at("before the reservation")
	found, err := d.Store.Reserve(ctx, key, token, lease)
	d.at("after the reservation")
	return found, err
}

func (d *deadly) Confirm(ctx context.Context, key dedupe.Key, token string, ttl time.Duration) (bool, error) {
	d.at("after fn before the confirmation")
	held, err := d.Store.Confirm(ctx, key, token, ttl)
	d.at("after the confirmation")
	return held, err
}

// addLine is an effect that survives the process.
func addLine(file string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString("effect\n")
	return errors.Join(err, f.Close())
}

func countLines(t *testing.T, file string) (n int) {
	t.Helper()
	f, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		n++
	}
	return n
}
