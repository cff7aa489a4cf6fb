package main

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// peersOf are whom each case must have figures of, at least.
var peersOf = map[string][]string{
	"accept-single-1":             acceptors,
	"accept-single-16":            acceptors,
	"accept-single-64":            acceptors,
	"accept-batch-100":            acceptors,
	"accept-single-16-duplicates": {letterboxPeer, byHandPeer, riverPeer},
	"accept-batch-100-duplicates": {letterboxPeer, byHandPeer, riverPeer},
	"accept-wakeups":              {letterboxPeer},
	"drain-each-1":                {letterboxPeer, byHandPeer, watermillPeer},
	"drain-each-32":               processors,
	"drain-each-100":              {letterboxPeer, byHandPeer, watermillPeer, watermillQueuePeer},
	"drain-batch-100":             {letterboxPeer, byHandPeer, setBasedPeer, watermillPeer},
	"workers-1":                   {letterboxPeer, byHandPeer, riverTunedPeer, guePeer, watermillPeer},
	"workers-4":                   {letterboxPeer, byHandPeer, riverTunedPeer, guePeer, watermillPeer},
	"workers-16":                  {letterboxPeer, byHandPeer, riverTunedPeer, guePeer, watermillPeer},
	"drain-keys-1000":             {letterboxPeer},
	"drain-key-hot":               {letterboxPeer},
	"latency-50":                  latencyPeers,
	"latency-500":                 latencyPeers,
	"growth-1m":                   {letterboxPeer},
	"growth-1m-accept":            {letterboxPeer},
	"growth-10m":                  {letterboxPeer},
	"growth-10m-accept":           {letterboxPeer},
	"growth-junk":                 {letterboxPeer},
	"growth-snapshot":             {letterboxPeer},
	"growth-sweep":                {letterboxPeer},
	"sqlite-32":                   inTables,
	"sqlite-latency-50":           inTables,
	"sqlite-latency-500":          inTables,
	"rss-200k":                    inTables,
	"disk-per-message":            {letterboxPeer},
}

func TestEveryCaseMeasuresEveryPeer(t *testing.T) {
	t.Parallel()
	b := newBench(testServer(t), tinyScale, testLog{t})
	b.growth10m = true
	records, err := b.run(t.Context(), regexp.MustCompile(""))
	if err != nil {
		t.Error(err)
	}
	for name, peers := range peersOf {
		for _, peer := range peers {
			i := slices.IndexFunc(records, func(r record) bool { return r.Case == name && r.Peer == peer })
			if i < 0 {
				t.Errorf("%s has no figure of %s", name, peer)
				continue
			}
			r := records[i]
			if r.Unit == "" || r.N == 0 || r.Value < 0 || r.Value == 0 && r.Unit == perSecond {
				t.Errorf("%+v", r)
			}
			if comparesWithItself := len(peers) == 1 && name != "disk-per-message"; comparesWithItself && r.Baseline <= 0 {
				t.Errorf("%s has no baseline", name)
			}
		}
	}
	for _, r := range records {
		if _, ok := peersOf[r.Case]; !ok {
			t.Errorf("case %s is not in the list of this test", r.Case)
		}
	}
	var chart bytes.Buffer
	if err := writeChart(&chart, records); err != nil || !strings.Contains(chart.String(), "<svg") {
		t.Errorf("chart: %v", err)
	}
}
