package dedupe_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/letterbox-go/letterbox/dedupe"
	"github.com/letterbox-go/letterbox/mediator"
)

func ExampleGuard_Do() {
	// Memory serves one process. sqlstore and redisstore serve many.
	guard, err := dedupe.New(dedupe.Config{Store: dedupe.NewMemory(dedupe.MemoryConfig{})})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	mail := func(context.Context) error { fmt.Println("mail sent"); return nil }
	for range 3 {
		ran, err := guard.Do(ctx, "mails", "order-1", mail)
		fmt.Println(ran, err)
	}

	// Output:
	// mail sent
	// true <nil>
	// false <nil>
	// false <nil>
}

func ExampleGuard_Do_failure() {
	guard, _ := dedupe.New(dedupe.Config{Store: dedupe.NewMemory(dedupe.MemoryConfig{})})
	ctx := context.Background()
	ran, err := guard.Do(ctx, "mails", "order-1", func(context.Context) error { return errors.New("mailbox full") })
	fmt.Println(ran, err)
	ran, err = guard.Do(ctx, "mails", "order-1", func(context.Context) error { return nil })
	fmt.Println(ran, err)

	// Output:
	// true mailbox full
	// true <nil>
}

func ExampleGuard_DoFor() {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	guard, _ := dedupe.New(dedupe.Config{
		Store: dedupe.NewMemory(dedupe.MemoryConfig{Clock: clock}),
		Clock: clock,
	})
	ctx := context.Background()
	remind := func(context.Context) error { fmt.Println("reminded at", now.Format(time.TimeOnly)); return nil }
	for range 3 {
		if _, err := guard.DoFor(ctx, "reminders", "customer-1", time.Hour, remind); err != nil {
			fmt.Println(err)
		}
		now = now.Add(30 * time.Minute)
	}

	// Output:
	// reminded at 00:00:00
	// reminded at 01:00:00
}

func ExampleGuard_Stats() {
	guard, _ := dedupe.New(dedupe.Config{Store: dedupe.NewMemory(dedupe.MemoryConfig{})})
	for range 3 {
		_, _ = guard.Do(context.Background(), "mails", "order-1", func(context.Context) error { return nil })
	}
	fmt.Printf("%+v\n", guard.Stats())

	// Output:
	// {Runs:1 Duplicates:2 CacheHits:2 CacheSize:1 StoreErrors:0 LeasesLost:0}
}

func ExampleGuard_CleanupExpired() {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	guard, _ := dedupe.New(dedupe.Config{
		Store: dedupe.NewMemory(dedupe.MemoryConfig{Clock: clock}),
		Clock: clock,
	})
	ctx := context.Background()
	_, _ = guard.Do(ctx, "mails", "order-1", func(context.Context) error { return nil })
	now = now.Add(24 * time.Hour)
	deleted, err := guard.CleanupExpired(ctx)
	fmt.Println(deleted, err)

	// Output:
	// 1 <nil>
}

func ExampleMiddleware() {
	guard, _ := dedupe.New(dedupe.Config{Store: dedupe.NewMemory(dedupe.MemoryConfig{})})
	requests := mediator.NewRequestMap()
	mediator.BindCommand(requests, func(_ context.Context, m sendMail) error {
		fmt.Println("mail for", m.OrderID)
		return nil
	})
	m := mediator.NewRequestMediator(requests, dedupe.Middleware(guard, func(message any) (scope, key string, ok bool) {
		mail, ok := message.(sendMail)
		return "mails", mail.OrderID, ok
	}))
	for range 2 {
		if _, err := m.Send(context.Background(), sendMail{OrderID: "order-1"}); err != nil {
			fmt.Println(err)
		}
	}

	// Output:
	// mail for order-1
}
