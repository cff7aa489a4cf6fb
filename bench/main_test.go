package main

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/internal/testdb"
)

// TestMain lets a test start its own program as the child of rss-200k.
func TestMain(m *testing.M) {
	child, err := runChild(context.Background())
	if child {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// tinyScale has every case at work for a moment.
var tinyScale = scale{
	rounds: 1, rows: 120, accepts: 64, history: 300, junk: 100, backlog: 200,
	memory: 200, seconds: 0.1, latencyRounds: 1, patience: 20 * time.Second,
}

// testServer does not wait for the disk: no figure of a test is worth anything.
func testServer(t *testing.T) *server {
	t.Helper()
	own := testdb.StartServer(t, testdb.Config{Settings: serverSettings})
	return &server{dsn: own.DSN(), keep: true}
}

// testLog shows progress where a test has failed.
type testLog struct{ t *testing.T }

func (l testLog) Write(text []byte) (int, error) {
	l.t.Log(string(text))
	return len(text), nil
}
