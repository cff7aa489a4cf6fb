package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
)

// writeTable prints records for people.
func writeTable(out io.Writer, records []record) error {
	table := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "case\tpeer\tmessages\tmedian\tunit\tlow - high\tof limit\tof baseline\tsettings")
	last := ""
	for _, r := range records {
		if last != "" && r.Case != last {
			fmt.Fprintln(table, strings.Repeat("\t", 8))
		}
		last = r.Case
		fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%s\t%s - %s\t%s\t%s\t%s\n", r.Case, r.Peer, r.N, number(r.Value), r.Unit,
			number(r.low), number(r.high), ratio(r, false), ratio(r, true), r.note)
	}
	return table.Flush()
}

// writeMarkdown prints records as a table for docs/performance.md.
func writeMarkdown(out io.Writer, records []record) error {
	_, err := fmt.Fprint(out, "| case | peer | messages | median | unit | of limit | of baseline |\n|---|---|--:|--:|---|--:|--:|\n")
	for _, r := range records {
		if err == nil {
			_, err = fmt.Fprintf(out, "| %s | %s | %d | %s | %s | %s | %s |\n",
				r.Case, r.Peer, r.N, number(r.Value), r.Unit, ratio(r, false), ratio(r, true))
		}
	}
	return err
}

// ratio is a record's ratio to its limit, or to its baseline, which is the limit
// of a growth case.
func ratio(r record, toBaseline bool) string {
	if r.RatioToLimit == 0 || toBaseline != (r.Baseline > 0) {
		return ""
	}
	return fmt.Sprintf("%.2f", r.RatioToLimit)
}

// number prints three digits or more.
func number(value float64) string {
	switch {
	case value >= 100:
		return fmt.Sprintf("%.0f", value)
	case value >= 10:
		return fmt.Sprintf("%.1f", value)
	}
	return fmt.Sprintf("%.2f", value)
}

// writeJSON writes one object a line.
func writeJSON(out io.Writer, records []record) error {
	encoder := json.NewEncoder(out)
	for i := range records {
		if err := encoder.Encode(&records[i]); err != nil {
			return err
		}
	}
	return nil
}

// readJSON reads what writeJSON wrote. The spread and the settings are not in it.
func readJSON(in io.Reader) (records []record, err error) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var r record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("line %d: %w", len(records)+1, err)
		}
		records = append(records, r)
	}
	return records, lines.Err()
}

// writeFile creates or replaces a file.
func writeFile(name string, write func(io.Writer) error) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := write(file); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}
