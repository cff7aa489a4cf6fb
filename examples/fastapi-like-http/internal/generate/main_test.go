package main

import (
	"bytes"
	"os"
	"testing"
)

func TestTheDataFilesAreWhatTheGeneratorWrites(t *testing.T) {
	t.Parallel()
	accounts, notifications := generate()
	for file, want := range map[string][]byte{
		"../../data/accounts.jsonl":      accounts,
		"../../data/notifications.jsonl": notifications,
	} {
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s differs from what the generator writes: run go generate", file)
		}
	}
}
