package inbox_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
)

// LogObserver says what happened at the level an operator expects, names the
// message, and shows neither metadata nor what a terminal would act on.
func TestLogObserver(t *testing.T) {
	t.Parallel()
	message := inbox.Info{
		ID:       7,
		Identity: inbox.Identity{Source: "psp", MessageID: "m-1", Name: "credit"},
		Attempt:  3,
		Metadata: map[string]string{"secret": "hush"},
	}
	for kind, level := range map[inbox.ObservationKind]string{
		inbox.SawStored:      "DEBUG",
		inbox.SawDuplicate:   "DEBUG",
		inbox.SawMismatch:    "WARN",
		inbox.SawProcessed:   "DEBUG",
		inbox.SawFailed:      "WARN",
		inbox.SawPostponed:   "DEBUG",
		inbox.SawInterrupted: "INFO",
		inbox.SawDead:        "ERROR",
		inbox.SawSwept:       "INFO",
		inbox.SawAction:      "INFO",
	} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			observer := inbox.LogObserver(slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
			observer.Observe(observer.Start(t.Context(), []inbox.Info{message}), inbox.Observation{
				Kind: kind, Message: message, Duration: time.Millisecond, Delay: time.Second,
				Err: errors.New("no \x1b[2J\x00 such account"), Count: 5, Action: "retry", Actor: "ann",
			})
			var line map[string]any
			if err := json.Unmarshal(out.Bytes(), &line); err != nil {
				t.Fatalf("%v: %s", err, out.String())
			}
			for field, want := range map[string]any{
				"level": level, "id": 7.0, "name": "credit", "source": "psp", "message_id": "m-1",
				"attempt": 3.0, "count": 5.0, "action": "retry", "actor": "ann",
			} {
				if line[field] != want {
					t.Errorf("%s is %v, want %v", field, line[field], want)
				}
			}
			if text := out.String(); strings.Contains(text, "hush") || strings.Contains(text, "u001b") || strings.Contains(text, "u0000") {
				t.Errorf("the line shows what it must not: %s", text)
			}
		})
	}
}
