package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// envChild makes this program a child that drains, and says how much memory it took.
const envChild = "LETTERBOX_BENCH_CHILD"

const (
	unitMiB   = "MiB"
	unitBytes = "bytes/message"

	retainedBytes = `SELECT pg_total_relation_size('inbox_messages') + pg_total_relation_size('inbox_queue')`
)

// childTask is what a child does.
type childTask struct {
	Peer    string
	DSN     string
	N       int
	Workers int
	Batch   int
}

// runChild reports whether this process is a child, and if so has done its work.
func runChild(ctx context.Context) (bool, error) {
	text := os.Getenv(envChild)
	if text == "" {
		return false, nil
	}
	var task childTask
	if err := json.Unmarshal([]byte(text), &task); err != nil {
		return true, err
	}
	p := profiles[task.Peer].new()
	defer p.close()
	if err := p.open(ctx, task.DSN); err != nil {
		return true, err
	}
	pool, err := openPool(ctx, task.DSN, 1)
	if err != nil {
		return true, err
	}
	defer pool.Close()
	d := &database{pool: pool}
	if err := p.process(ctx, settings{workers: task.Workers, batch: task.Batch}, newWork(task.N, d.committed)); err != nil {
		return true, err
	}
	kib, err := peakMemory()
	if err == nil {
		_, err = fmt.Println(kib)
	}
	return true, err
}

// peakMemory is the largest resident set of this process so far, in KiB.
func peakMemory() (int, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("peak memory is read from Linux's /proc: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			return strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")))
		}
	}
	return 0, errors.New("no VmHWM in /proc/self/status")
}

// memory is a contender: a processor in a process of its own drains n messages.
func (b *bench) memory(name string, n int, how settings) contender {
	open := func(ctx context.Context) (trial, error) {
		o, err := openPeer(ctx, b.server, b.profiles[name].new())
		if err != nil {
			return trial{}, err
		}
		var messages []message
		return trial{
			prepare: func(ctx context.Context) error {
				messages = newMessages(n)
				return drain{bench: b, load: loadQuickly}.loadInto(ctx, o, messages)
			},
			run: func(ctx context.Context) ([]figure, error) {
				kib, err := startChild(ctx, childTask{name, o.db.dsn, n, how.workers, how.batch})
				if err == nil {
					err = o.db.verify(ctx, o.counts(), messages)
				}
				return []figure{{unitMiB, float64(kib) / 1024}}, err
			},
			close: o.closeAll,
		}, nil
	}
	return contender{peer: name, n: n, note: how.String(), open: open}
}

func startChild(ctx context.Context, task childTask) (kib int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	text, err := json.Marshal(task)
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), envChild+"="+string(text))
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, os.Stderr
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("child process: %w", err)
	}
	return strconv.Atoi(strings.TrimSpace(said.String()))
}

// disk is a contender: what a processed message still takes in both tables, with
// their indexes.
func (b *bench) disk(d drain) contender {
	c := d.contender()
	c.open = func(ctx context.Context) (trial, error) {
		o, err := openPeer(ctx, b.server, b.profiles[d.name].new())
		if err != nil {
			return trial{}, err
		}
		run := func(ctx context.Context) ([]figure, error) {
			before, err := o.db.count(ctx, retainedBytes)
			if err != nil {
				return nil, err
			}
			messages := newMessages(d.n)
			if err := d.loadInto(ctx, o, messages); err != nil {
				return nil, err
			}
			if _, err := d.once(ctx, o, messages); err != nil {
				return nil, err
			}
			if err := o.db.settle(ctx); err != nil {
				return nil, err
			}
			after, err := o.db.count(ctx, retainedBytes)
			return []figure{{unitBytes, float64(after-before) / float64(d.n)}}, err
		}
		return trial{run: run, close: o.closeAll}, nil
	}
	return c
}
