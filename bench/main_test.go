package main

import (
	"context"
	"fmt"
	"os"
	"testing"

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
	memory: 200, seconds: 0.1, latencyRounds: 1, tuneRows: 40,
}

func testServer(t *testing.T) *server {
	t.Helper()
	own := testdb.StartServer(t, testdb.Config{Durable: true, Settings: serverSettings})
	s := &server{dsn: own.DSN(), keep: true}
	if err := s.check(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// testLog shows progress where a test has failed.
type testLog struct{ t *testing.T }

func (l testLog) Write(text []byte) (int, error) {
	l.t.Log(string(text))
	return len(text), nil
}
