package inbox_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The quick start of the README is the package example, as a program.
func TestTheQuickStartIsTheExample(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(readme), "<!-- quick start: keep equal to inbox/example_test.go -->\n```go\n")
	if !found {
		t.Fatal("README.md has no quick start")
	}
	program, _, _ := strings.Cut(rest, "```\n")
	example, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.NewReplacer("package inbox_test", "package main", "func Example()", "func main()").Replace(string(example))
	if diff := cmp.Diff(want, program); diff != "" {
		t.Errorf("copy one over the other\n%s", diff)
	}
}
