package dedupe_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/letterbox-go/letterbox/dedupe"
)

// BenchmarkHit is a duplicate that the guard itself remembers.
func BenchmarkHit(b *testing.B) {
	guard := newGuard(b, dedupe.Config{Store: dedupe.NewMemory(dedupe.MemoryConfig{})})
	ctx, fn := context.Background(), func(context.Context) error { return nil }
	keys := make([]string, 8192)
	for i := range keys {
		keys[i] = fmt.Sprintf("0197c3f8-8b4e-7cc5-9a40-%012d", i)
		if _, err := guard.Do(ctx, "mails", keys[i], fn); err != nil {
			b.Fatal(err)
		}
	}
	hit := func(b *testing.B, i int) {
		if ran, err := guard.Do(ctx, "mails", keys[i%len(keys)], fn); ran || err != nil {
			b.Error(ran, err)
		}
	}
	b.Run("one goroutine", func(b *testing.B) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			hit(b, i)
			i++
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for i := 0; pb.Next(); i++ {
				hit(b, i)
			}
		})
	})
}

// BenchmarkRun is a fresh key with the memory store.
func BenchmarkRun(b *testing.B) {
	guard := newGuard(b, dedupe.Config{Store: dedupe.NewMemory(dedupe.MemoryConfig{})})
	ctx, fn := context.Background(), func(context.Context) error { return nil }
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		if ran, err := guard.Do(ctx, "mails", fmt.Sprint(i), fn); !ran || err != nil {
			b.Fatal(ran, err)
		}
	}
}
