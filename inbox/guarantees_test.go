package inbox_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Every test and rule that docs/guarantees.md names exists, and every guarantee
// has some.
func TestGuaranteesNameTheirTests(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	have := namesOfTests(t)
	numbered := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) < 4 || strings.HasPrefix(cells[1], "---") {
			continue
		}
		names := regexp.MustCompile("`([^`]+)`|\"([^\"]+)\"").FindAllStringSubmatch(cells[len(cells)-2], -1)
		if n, err := strconv.Atoi(strings.TrimSpace(cells[1])); err == nil {
			if numbered++; n != numbered {
				t.Errorf("guarantee %d stands where %d belongs", n, numbered)
			}
			if len(names) == 0 {
				t.Errorf("guarantee %d names no test", n)
			}
		}
		for _, name := range names {
			if !have[name[1]+name[2]] {
				t.Errorf("there is no test or rule %q", name[1]+name[2])
			}
		}
	}
	if numbered != 17 {
		t.Errorf("%d guarantees, want 17", numbered)
	}
}

// namesOfTests collects the test functions of all modules and the rules of the
// contract.
func namesOfTests(t *testing.T) map[string]bool {
	t.Helper()
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	rule := regexp.MustCompile(`(?m)^\t\t(?:Name: )?"((?:[^"\\]|\\.)+)",$`)
	have := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		find := function
		if filepath.Base(filepath.Dir(path)) == "inboxtest" && !strings.HasSuffix(path, "_test.go") {
			find = rule
		} else if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range find.FindAllSubmatch(text, -1) {
			have[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return have
}
