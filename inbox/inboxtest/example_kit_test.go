package inboxtest_test

import (
	"fmt"
	"time"

	"github.com/letterbox-go/letterbox/inbox/inboxtest"
)

func ExampleClock() {
	clock := inboxtest.NewClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	// config := inbox.Config{Clock: clock.Now}
	clock.Advance(36 * time.Hour)
	fmt.Println(clock.Now().Format(time.DateTime))
	// Output: 2026-01-02 12:00:00
}

func ExampleCrashPoints() {
	for _, point := range inboxtest.CrashPoints() {
		fmt.Println(point)
	}
	// Output:
	// before the accept is stored
	// between the accept and the answer
	// before the handler
	// after the handler
	// before the messages are settled
	// before COMMIT
	// after COMMIT
}
