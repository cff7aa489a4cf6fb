package main

import (
	"testing"

	"github.com/letterbox-go/letterbox/internal/testdb"
)

func TestWhatIsCommittedIsForwardedAndNothingElse(t *testing.T) {
	ok, err := run(t.Context(), testdb.PGX(t))
	if err != nil || !ok {
		t.Errorf("ok = %v, %v", ok, err)
	}
}
