package relay_test

import (
	"strings"
	"testing"

	"github.com/letterbox-go/letterbox/wakeup/internal/relay"
)

func TestChannel(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 63)
	seen := map[string][2]string{}
	for _, c := range [][2]string{
		{"public", "inbox_messages"},
		{"public", "other_messages"},
		{"other", "inbox_messages"},
		{"a.b", "c"},
		{"a", "b.c"},
		{"Public", "inbox_messages"},
		{`a"b`, "c"},
		{"a", `b"c`},
		{"ünï", "c"},
		{"a", ""},
		{"", "a"},
		{long, "a"},
		{long, "b"},
		{"a", long},
		{long[:30], long[:22]},
		{long[:30], long[:23]},
		{long[:31], long[:22]},
	} {
		channel := relay.Channel(c[0], c[1])
		if other, twice := seen[channel]; twice {
			t.Errorf("%q and %q share %q", c, other, channel)
		}
		seen[channel] = c
		if len(channel) > 63 {
			t.Errorf("%q: the channel %q has %d bytes, PostgreSQL takes 63", c, channel, len(channel))
		}
		if strings.ContainsAny(channel, "\"\\") {
			t.Errorf("%q: the channel %q would have to be quoted", c, channel)
		}
	}
	if got, want := relay.Channel("public", "inbox_messages"), "letterbox.public.inbox_messages"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
