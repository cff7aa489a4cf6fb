package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// sample is a case with a limit and one with a baseline, as measured.
func sample() []*result {
	limited := &benchCase{name: "drain-each-32", limit: byHandPeer}
	grown := &benchCase{name: "growth-1m"}
	return append(
		[]*result{
			{benchCase: limited, contender: &contender{peer: letterboxPeer, n: 100}, units: []string{perSecond}, figures: map[string][]float64{perSecond: {90, 70, 80}}},
			{benchCase: limited, contender: &contender{peer: byHandPeer, n: 100}, units: []string{perSecond}, figures: map[string][]float64{perSecond: {100, 110, 90}}},
		},
		&result{benchCase: grown, contender: &contender{peer: letterboxPeer, n: 50, baseline: true}, units: []string{perSecond}, figures: map[string][]float64{perSecond: {40}}},
		&result{benchCase: grown, contender: &contender{peer: letterboxPeer, n: 50}, units: []string{perSecond}, figures: map[string][]float64{perSecond: {30}}},
	)
}

func sampleRecords() []record {
	all := sample()
	return append(records(all[:2]), records(all[2:])...)
}

func TestMediansAndRatiosAreThoseOfTheRun(t *testing.T) {
	t.Parallel()
	want := []record{
		{Case: "drain-each-32", Peer: "letterbox", N: 100, Value: 80, Unit: "msg/s", RatioToLimit: 0.8, low: 70, high: 90},
		{Case: "drain-each-32", Peer: "by-hand", N: 100, Value: 100, Unit: "msg/s", RatioToLimit: 1, low: 90, high: 110},
		{Case: "growth-1m", Peer: "letterbox", N: 50, Value: 30, Unit: "msg/s", RatioToLimit: 0.75, Baseline: 40, low: 30, high: 30},
	}
	if diff := cmp.Diff(want, sampleRecords(), cmp.AllowUnexported(record{})); diff != "" {
		t.Error(diff)
	}
}

func TestOneJSONObjectALineHasTheseFields(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := writeJSON(&out, sampleRecords()); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for i, line := range lines {
		var object map[string]any
		if err := json.Unmarshal([]byte(line), &object); err != nil {
			t.Fatal(err)
		}
		var keys []string
		for key := range object {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		want := []string{"case", "n", "peer", "ratio_to_limit", "unit", "value"}
		if i == len(lines)-1 {
			want = append([]string{"baseline"}, want...)
		}
		if diff := cmp.Diff(want, keys); diff != "" {
			t.Error(diff)
		}
	}
	again, err := readJSON(&out)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sampleRecords(), again, cmpopts.IgnoreUnexported(record{})); diff != "" {
		t.Error(diff)
	}
}

func TestFiguresOfAFileBecomeMarkdownAndAChart(t *testing.T) {
	t.Parallel()
	file, chart := filepath.Join(t.TempDir(), "figures.jsonl"), filepath.Join(t.TempDir(), "chart.svg")
	var lines, out bytes.Buffer
	if err := writeJSON(&lines, sampleRecords()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, lines.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	o, err := parseFlags([]string{"-from", file, "-markdown", "-chart", chart})
	if err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), o, &out, testLog{t}); err != nil {
		t.Fatal(err)
	}
	if want := "| drain-each-32 | letterbox | 100 | 80.0 | msg/s | 0.80 |  |\n"; !strings.Contains(out.String(), want) {
		t.Errorf("no line %q in\n%s", want, out.String())
	}
	svg, err := os.ReadFile(chart)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<svg", "letterbox", "by-hand", "drain, per-message handler"} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("the chart does not show %q", want)
		}
	}
}

func TestPercentilesOfDelays(t *testing.T) {
	t.Parallel()
	delays := []time.Duration{-time.Millisecond}
	for i := range 99 {
		delays = append(delays, time.Duration(99-i)*time.Millisecond)
	}
	want := []figure{{unitP50, 50}, {unitP99, 99}, {unitMax, 99}}
	if diff := cmp.Diff(want, percentiles(delays), cmp.AllowUnexported(figure{})); diff != "" {
		t.Error(diff)
	}
}

func TestMessagesAreOfOneSize(t *testing.T) {
	t.Parallel()
	for _, m := range newMessages(2000) {
		if n := len(m.encode()); n != payloadBytes {
			t.Fatalf("%d bytes", n)
		}
	}
}
