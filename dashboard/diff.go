package dashboard

import "strings"

// diffLine is a line of a comparison.
type diffLine struct {
	Kind string // "same", "old" or "new"
	Text string
}

// Sign is the mark before the line.
func (l diffLine) Sign() string {
	switch l.Kind {
	case "old":
		return "−"
	case "new":
		return "+"
	}
	return " "
}

const (
	// diffCells bounds the work: two texts of more lines than that, multiplied,
	// are shown one after the other.
	diffCells = 4 << 20
	// diffContext is how many unchanged lines stand around a change.
	diffContext = 3
	// diffLines is how many lines a page shows.
	diffLines = 2000
)

// diff compares two texts line by line. Long stretches without a change are
// left out, and so is what goes beyond diffLines.
func diff(before, after string) (lines []diffLine, more bool) {
	all := compareLines(strings.Split(before, "\n"), strings.Split(after, "\n"))
	near := make([]bool, len(all))
	for i, line := range all {
		if line.Kind == "same" {
			continue
		}
		for j := max(0, i-diffContext); j <= min(len(all)-1, i+diffContext); j++ {
			near[j] = true
		}
	}
	for i, line := range all {
		switch {
		case len(lines) == diffLines:
			return lines, true
		case near[i]:
			lines = append(lines, diffLine{line.Kind, visible(line.Text, false)})
		case i == 0 || near[i-1]:
			lines = append(lines, diffLine{"gap", "…"})
		}
	}
	return lines, false
}

// compareLines finds the longest common subsequence between what differs.
func compareLines(a, b []string) (all []diffLine) {
	same := func(lines []string) {
		for _, line := range lines {
			all = append(all, diffLine{"same", line})
		}
	}
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	same(a[:head])
	all = append(all, compareMiddle(a[head:len(a)-tail], b[head:len(b)-tail])...)
	same(a[len(a)-tail:])
	return all
}

func compareMiddle(a, b []string) (all []diffLine) {
	var length [][]int32 // of the longest common subsequence of a[i:] and b[j:]
	if len(a)*len(b) <= diffCells {
		length = make([][]int32, len(a)+1)
		for i := range length {
			length[i] = make([]int32, len(b)+1)
		}
		for i := len(a) - 1; i >= 0; i-- {
			for j := len(b) - 1; j >= 0; j-- {
				if a[i] == b[j] {
					length[i][j] = length[i+1][j+1] + 1
				} else {
					length[i][j] = max(length[i+1][j], length[i][j+1])
				}
			}
		}
	}
	i, j := 0, 0
	for length != nil && i < len(a) && j < len(b) {
		switch {
		case a[i] == b[j]:
			all = append(all, diffLine{"same", a[i]})
			i, j = i+1, j+1
		case length[i+1][j] >= length[i][j+1]:
			all = append(all, diffLine{"old", a[i]})
			i++
		default:
			all = append(all, diffLine{"new", b[j]})
			j++
		}
	}
	for ; i < len(a); i++ {
		all = append(all, diffLine{"old", a[i]})
	}
	for ; j < len(b); j++ {
		all = append(all, diffLine{"new", b[j]})
	}
	return all
}
