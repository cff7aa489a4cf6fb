package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"runtime/pprof"
	"time"
)

// options are the flags.
type options struct {
	short      bool
	json       string
	dsn        string
	cases      string
	peers      string
	rounds     int
	growth10m  bool
	chart      string
	markdown   bool
	from       string
	list       bool
	cpuProfile string
	memProfile string
}

func parseFlags(arguments []string) (o options, err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.BoolVar(&o.short, "short", false, "small numbers of rows, numbers of workers not tuned: under four minutes")
	flags.StringVar(&o.json, "json", "", "write one JSON object a line to `FILE`")
	flags.StringVar(&o.dsn, "dsn", "", "`URL` of a PostgreSQL server to use instead of an own one; its user must be superuser")
	flags.StringVar(&o.cases, "cases", "", "run only cases that match `REGEXP`")
	flags.StringVar(&o.peers, "peers", "", "run only peers that match `REGEXP`")
	flags.IntVar(&o.rounds, "rounds", 0, "`N` rounds instead of 5, or 2 with -short")
	flags.BoolVar(&o.growth10m, "growth10m", false, "also measure with 10 M processed rows")
	flags.StringVar(&o.chart, "chart", "", "draw the main cases into `FILE`, an SVG")
	flags.BoolVar(&o.markdown, "markdown", false, "print the table as Markdown, for docs/performance.md")
	flags.StringVar(&o.from, "from", "", "measure nothing, take the figures from `FILE`, written with -json")
	flags.BoolVar(&o.list, "list", false, "list the cases")
	flags.StringVar(&o.cpuProfile, "cpuprofile", "", "write a CPU profile to `FILE`; its samples are labelled by case and peer")
	flags.StringVar(&o.memProfile, "memprofile", "", "write an allocation profile of everything to `FILE`")
	if err := flags.Parse(arguments); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return o, nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	child, err := runChild(ctx)
	if !child {
		var o options
		if o, err = parseFlags(os.Args[1:]); err == nil {
			err = run(ctx, o, os.Stdout, os.Stderr)
		}
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures, or reads, and reports. Whatever was measured is reported, also
// when a contender was refused: then the error says which.
func run(ctx context.Context, o options, out, progress io.Writer) error {
	var records []record
	var failed error
	if o.from != "" {
		file, err := os.Open(o.from)
		if err != nil {
			return err
		}
		defer file.Close()
		if records, err = readJSON(file); err != nil {
			return fmt.Errorf("%s: %w", o.from, err)
		}
	} else if records, failed = measureAll(ctx, o, out, progress); len(records) == 0 {
		return failed
	}
	return errors.Join(report(o, out, records), failed)
}

func report(o options, out io.Writer, records []record) error {
	write := writeTable
	if o.markdown {
		write = writeMarkdown
	}
	errs := []error{write(out, records)}
	if o.json != "" {
		errs = append(errs, writeFile(o.json, func(w io.Writer) error { return writeJSON(w, records) }))
	}
	if o.chart != "" {
		errs = append(errs, writeFile(o.chart, func(w io.Writer) error { return writeChart(w, records) }))
	}
	return errors.Join(errs...)
}

// measureAll runs the chosen cases on a server.
func measureAll(ctx context.Context, o options, out, progress io.Writer) (records []record, err error) {
	wanted, peers, err := patterns(o)
	if err != nil {
		return nil, err
	}
	scale := fullScale
	if o.short {
		scale = shortScale
	}
	if o.rounds > 0 {
		scale.rounds = o.rounds
	}
	if o.list {
		b := newBench(nil, scale, progress)
		b.growth10m = true
		for _, c := range allCases(b) {
			fmt.Fprintf(out, "%-28s %s\n", c.name, c.about)
		}
		return nil, nil
	}
	server, err := startServer(ctx, o.dsn)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.close()) }()
	stopProfiles, err := startProfiles(o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stopProfiles()) }()
	server.keep = o.short && o.dsn == ""
	b := newBench(server, scale, progress)
	b.growth10m, b.peers = o.growth10m, peers
	version, err := server.version(ctx)
	if err != nil {
		return nil, err
	}
	b.log("PostgreSQL %s, %s, %s/%s, %d CPUs, %s", version, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(),
		time.Now().UTC().Format(time.DateOnly))
	return b.run(ctx, wanted)
}

// patterns compiles -cases and -peers; empty ones match everything.
func patterns(o options) (cases, peers *regexp.Regexp, err error) {
	if cases, err = regexp.Compile(o.cases); err != nil {
		return nil, nil, fmt.Errorf("-cases: %w", err)
	}
	if peers, err = regexp.Compile(o.peers); err != nil {
		return nil, nil, fmt.Errorf("-peers: %w", err)
	}
	return cases, peers, nil
}

// startProfiles starts what -cpuprofile and -memprofile ask for.
func startProfiles(o options) (stop func() error, err error) {
	var cpu *os.File
	if o.cpuProfile != "" {
		if cpu, err = os.Create(o.cpuProfile); err != nil {
			return nil, err
		}
		if err := pprof.StartCPUProfile(cpu); err != nil {
			return nil, errors.Join(err, cpu.Close())
		}
	}
	return func() (err error) {
		if cpu != nil {
			pprof.StopCPUProfile()
			err = cpu.Close()
		}
		if o.memProfile != "" {
			err = errors.Join(err, writeFile(o.memProfile, func(w io.Writer) error { return pprof.Lookup("allocs").WriteTo(w, 0) }))
		}
		return err
	}, nil
}
