package doctor_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every finding has its place in the guide.
func TestFindingsAreDocumented(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../docs/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	var headings strings.Builder
	for line := range strings.Lines(string(guide)) {
		if strings.HasPrefix(line, "### ") {
			headings.WriteString(line)
		}
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range regexp.MustCompile(`e\.find\("([a-z-]+)"`).FindAllStringSubmatch(string(source), -1) {
			found++
			if !regexp.MustCompile(`[ ]` + match[1] + `[ ,]`).MatchString(headings.String()) {
				t.Errorf("docs/doctor.md has no section for %s", match[1])
			}
		}
	}
	if found < 25 {
		t.Errorf("%d findings in the source", found)
	}
}
