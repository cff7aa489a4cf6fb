package dedupetest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/dedupe"
)

var key = dedupe.Key{Scope: "mails", ID: "order-1"}

var storeCases = []Case{
	{
		"a free key is reserved once",
		"Reserve takes a free key; for others it is held, with the rest of the lease; the same token may ask again.",
		func(t *testing.T, store dedupe.Store) {
			s := tester{t, store}
			s.wantState(key, "a", dedupe.Reserved)
			found := s.wantState(key, "b", dedupe.Held)
			if found.Remaining <= 0 || found.Remaining > long {
				t.Errorf("remaining %v of a lease of %v", found.Remaining, long)
			}
			s.wantState(key, "a", dedupe.Reserved)
		},
	},
	{
		"reserving again extends the lease",
		"Reserve by the holder moves the end of the lease.",
		func(t *testing.T, store dedupe.Store) {
			s := tester{t, store}
			s.reserve(key, "a", time.Minute)
			s.reserve(key, "a", long)
			if found := s.wantState(key, "b", dedupe.Held); found.Remaining <= time.Minute {
				t.Errorf("remaining %v, want more than a minute", found.Remaining)
			}
		},
	},
	{
		"a confirmed key is remembered",
		"After Confirm nobody can reserve the key, not even its own token, and the rest of the TTL is told.",
		func(t *testing.T, store dedupe.Store) {
			s := tester{t, store}
			s.wantState(key, "a", dedupe.Reserved)
			if !s.confirm(key, "a", 2*long) {
				t.Error("confirm: the lease was not held")
			}
			for _, token := range []string{"b", "a"} {
				found := s.wantState(key, token, dedupe.Confirmed)
				if found.Remaining <= long || found.Remaining > 2*long {
					t.Errorf("remaining %v of a TTL of %v", found.Remaining, 2*long)
				}
			}
		},
	},
	{
		"a shorter TTL than the lease counts from the confirmation",
		"Confirm replaces the end of the lease by the end of the TTL.",
		func(t *testing.T, store dedupe.Store) {
			s := tester{t, store}
			s.wantState(key, "a", dedupe.Reserved)
			s.confirm(key, "a", short)
			s.expire(key)
		},
	},
	{
		"a released key is free",
		"Release by the holder frees the key at once.",
		func(t *testing.T, store dedupe.Store) {
			s := tester{t, store}
			s.wantState(key, "a", dedupe.Reserved)
			if !s.release(key, "a") {
				t.Error("release: the lease was not held")
			}
			s.wantState(key, "b", dedupe.Reserved)
		},
	},
	{
		"only the holder can release",
		"Release with another token, for a free key or for a confirmed one changes nothing and reports not held.",
		func(t *testing.T, store dedupe.Store) {
			s := tester{t, store}
			if s.release(key, "a") {
				t.Error("release of a free key: held")
			}
			s.wantState(key, "a", dedupe.Reserved)
			if s.release(key, "b") {
				t.Error("release by another: held")
			}
			s.wantState(key, "b", dedupe.Held)
			s.confirm(key, "a", long)
			if s.release(key, "a") {
				t.Error("release of a confirmed key: held")
			}
			s.wantState(key, "b", dedupe.Confirmed)
		},
	},
	{
		"a lease ends by itself",
		"When the lease has ended another may reserve, and the former holder can neither release nor extend.",
		func(t *testing.T, store dedupe.Store) {
			s := tester{t, store}
			s.reserve(key, "a", short)
			eventually(t, "the lease ends", func() bool { return s.reserve(key, "b", long).State == dedupe.Reserved })
			if s.release(key, "a") {
				t.Error("release by the former holder: held")
			}
			s.wantState(key, "a", dedupe.Held)
		},
	},
	{
		"a lease that has ended is not held",
		"Confirm and Release report an ended lease even when nobody took the key, and Confirm still remembers it.",
		func(t *testing.T, store dedupe.Store) {
			s := tester{t, store}
			released := dedupe.Key{ID: "released"}
			s.reserve(released, "a", time.Millisecond)
			s.reserve(key, "a", time.Millisecond)
			time.Sleep(short) // for two milliseconds by the store's clock to pass
			if s.release(released, "a") {
				t.Error("release after the lease: held")
			}
			s.wantState(released, "b", dedupe.Reserved)
			if s.confirm(key, "a", long) {
				t.Error("confirm after the lease: held")
			}
			s.wantState(key, "b", dedupe.Confirmed)
		},
	},
	{
		"a success is remembered though another holds the key",
		"Confirm by a former holder is reported as not held, and remembers the key all the same.",
		func(t *testing.T, store dedupe.Store) {
			s := tester{t, store}
			s.wantState(key, "b", dedupe.Reserved)
			if s.confirm(key, "a", long) {
				t.Error("confirm by the former holder: held")
			}
			s.wantState(key, "b", dedupe.Confirmed)
			if s.release(key, "b") {
				t.Error("release of what another confirmed: held")
			}
			s.wantState(key, "c", dedupe.Confirmed)
		},
	},
	{
		"confirming twice is confirming once",
		"Confirm may be repeated when its reply was lost.",
		func(t *testing.T, store dedupe.Store) {
			s := tester{t, store}
			s.wantState(key, "a", dedupe.Reserved)
			for range 2 {
				if !s.confirm(key, "a", long) {
					t.Error("confirm: the lease was not held")
				}
			}
			s.wantState(key, "b", dedupe.Confirmed)
		},
	},
	{
		"the longer confirmation wins",
		"A second Confirm, by whomever, never makes the key forgotten sooner.",
		func(t *testing.T, store dedupe.Store) {
			s := tester{t, store}
			s.wantState(key, "a", dedupe.Reserved)
			for i, token := range []string{"a", "a", "b"} {
				s.confirm(key, token, long/time.Duration(i+1))
				if found := s.wantState(key, "c", dedupe.Confirmed); found.Remaining <= long/2 {
					t.Errorf("confirmation %d: remaining %v, want more than %v", i, found.Remaining, long/2)
				}
			}
			s.confirm(key, "b", 2*long)
			if found := s.wantState(key, "c", dedupe.Confirmed); found.Remaining <= long {
				t.Errorf("remaining %v, want more than %v", found.Remaining, long)
			}
		},
	},
	{
		"a TTL ends by itself",
		"When the TTL has ended the key is free.",
		func(t *testing.T, store dedupe.Store) {
			s := tester{t, store}
			s.wantState(key, "a", dedupe.Reserved)
			s.confirm(key, "a", short)
			eventually(t, "the TTL ends", func() bool { return s.reserve(key, "b", long).State == dedupe.Reserved })
			s.wantState(key, "a", dedupe.Held)
			if !s.confirm(key, "b", long) {
				t.Error("confirm after the TTL of another: not held")
			}
		},
	},
	{
		"scope and id are two things",
		"Keys are compared byte for byte, case, accents and trailing spaces included, and never joined.",
		func(t *testing.T, store dedupe.Store) {
			s := tester{t, store}
			full := strings.Repeat("\u00e9", 128)
			var keys []dedupe.Key
			for _, k := range [][2]string{
				{"", "a"},
				{"a", "a"},
				{"a:b", "c"},
				{"a", "b:c"},
				{"1:a", "b"},
				{"1", "a:b"},
				{"a", "A"},
				{"a", "a "},
				{"a", " a"},
				{"a", "\u00e9"},
				{"a", "e\u0301"},
				{"a", "0"},
				{"a", "00"},
				{"a", `a'b"c\d?e{f}%s`},
				{`'"\?`, "a"},
				{full, full},
				{full, full[:254]},
				{full[:254], full},
			} {
				keys = append(keys, dedupe.Key{Scope: k[0], ID: k[1]})
			}
			for i, k := range keys {
				s.wantState(k, fmt.Sprint("t", i), dedupe.Reserved)
			}
			for i, k := range keys {
				if !s.confirm(k, fmt.Sprint("t", i), long) {
					t.Errorf("%q: not held by its own token", k)
				}
			}
		},
	},
	{
		"fifty at once get one reservation",
		"Of any number of callers exactly one reserves a free key, and again when its lease has ended.",
		func(t *testing.T, store dedupe.Store) {
			s := tester{t, store}
			for round := range 3 {
				states := make([]dedupe.State, 50)
				var all sync.WaitGroup
				for i := range states {
					all.Go(func() {
						found, err := store.Reserve(t.Context(), key, fmt.Sprint(round, "-", i), long)
						if err != nil {
							t.Errorf("reserve: %v", err)
						}
						states[i] = found.State
					})
				}
				all.Wait()
				winner := -1
				for i, state := range states {
					switch {
					case state == dedupe.Reserved && winner < 0:
						winner = i
					case state != dedupe.Held:
						t.Fatalf("round %d: caller %d: %v", round, i, state)
					}
				}
				if winner < 0 {
					t.Fatalf("round %d: nobody got the key", round)
				}
				// A lease that is about to end, for the next round to find.
				s.reserve(key, fmt.Sprint(round, "-", winner), time.Millisecond)
				time.Sleep(short)
			}
		},
	},
	{
		"an ended context is an error",
		"No method acts after its context has ended.",
		func(t *testing.T, store dedupe.Store) {
			s := tester{t, store}
			s.wantState(key, "a", dedupe.Reserved)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := store.Reserve(ctx, dedupe.Key{ID: "other"}, "a", long); err == nil {
				t.Error("reserve: no error")
			}
			if _, err := store.Confirm(ctx, key, "a", long); err == nil {
				t.Error("confirm: no error")
			}
			if _, err := store.Release(ctx, key, "a"); err == nil {
				t.Error("release: no error")
			}
			s.wantState(key, "b", dedupe.Held)
			s.wantState(dedupe.Key{ID: "other"}, "b", dedupe.Reserved)
		},
	},
	{
		"cleaning up touches expired keys only",
		"CleanupExpired deletes at most limit keys, all of them expired; a store without it forgets by itself.",
		func(t *testing.T, store dedupe.Store) {
			s := tester{t, store}
			cleaner, ok := store.(dedupe.Cleaner)
			if !ok {
				return // expiry itself is checked by the rules above
			}
			for i := range 5 {
				s.reserve(dedupe.Key{ID: fmt.Sprint("expired ", i)}, "a", time.Millisecond)
			}
			held, confirmed := dedupe.Key{ID: "held"}, dedupe.Key{ID: "confirmed"}
			s.wantState(held, "a", dedupe.Reserved)
			s.wantState(confirmed, "a", dedupe.Reserved)
			s.confirm(confirmed, "a", long)
			time.Sleep(short)
			for _, want := range []int{3, 2, 0} {
				got, err := cleaner.CleanupExpired(t.Context(), 3)
				if err != nil || got != want {
					t.Errorf("got %d, %v; want %d", got, err, want)
				}
			}
			s.wantState(held, "b", dedupe.Held)
			s.wantState(confirmed, "b", dedupe.Confirmed)
		},
	},
}
