// Command table reads the output of go test -bench and prints a table of its metrics beside their
// limits:
//
//	go test -run '^$' -bench Call ./bench | go run ./bench/table
//
// It prints its input first, so that benchstat can read all of it. The rows are in rows.txt, which
// explains its own form. Rows of benchmarks that did not run are left out.
package main

import (
	"bufio"
	_ "embed"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

//go:embed rows.txt
var rows string

func main() {
	got, err := read(io.TeeReader(os.Stdin, os.Stdout))
	if err == nil {
		err = write(os.Stdout, rows, got)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "table: %v\n", err)
		os.Exit(1)
	}
}

// results are the values of the metrics of a benchmark, one for each time that it ran.
type results map[string]metrics

type metrics map[string][]float64

// median returns the median of a metric, if the benchmark reports it.
func (m metrics) median(name string) (v float64, ok bool) {
	values := slices.Sorted(slices.Values(m[name]))
	if len(values) == 0 {
		return 0, false
	}
	return values[len(values)/2], true
}

var processors = regexp.MustCompile(`-\d+$`)

func read(in io.Reader) (results, error) {
	got := results{}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := processors.ReplaceAllString(strings.TrimPrefix(fields[0], "Benchmark"), "")
		for pair := range slices.Chunk(fields[2:], 2) {
			v, err := strconv.ParseFloat(pair[0], 64)
			if err != nil || len(pair) < 2 {
				break // a line that a test printed
			}
			if got[name] == nil {
				got[name] = metrics{}
			}
			got[name][pair[1]] = append(got[name][pair[1]], v)
		}
	}
	return got, lines.Err()
}

// write writes the rows that have results.
func write(w io.Writer, rows string, got results) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	title, over := "", 0
	for number, line := range strings.Split(rows, "\n") {
		if text, ok := strings.CutPrefix(line, "# "); ok {
			title = text
			continue
		}
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(line, "//") {
			continue
		}
		if len(fields) < 4 {
			return fmt.Errorf("rows.txt:%d: want BENCHMARK METRIC LIMIT TEXT, got %q", number+1,
				line)
		}
		r := row{benchmark: fields[0], metric: fields[1], limit: fields[2],
			text: strings.Join(fields[3:], " ")}
		cells, isOver, err := r.cells(got)
		if err != nil {
			return fmt.Errorf("rows.txt:%d: %w", number+1, err)
		}
		if cells == nil {
			continue
		}
		if title != "" {
			_ = out.Flush()
			fmt.Fprintf(w, "\n%s\n", title)
			fmt.Fprintln(out, "metric\tfloor\ttapgw\tratio\tlimit\t")
			title = ""
		}
		if isOver {
			over++
		}
		fmt.Fprintln(out, strings.Join(cells, "\t"))
	}
	_ = out.Flush()
	if over > 0 {
		fmt.Fprintf(w, "\n%d over their limits\n", over)
	} else {
		fmt.Fprintf(w, "\nall within their limits\n")
	}
	return nil
}

type row struct{ benchmark, metric, limit, text string }

// cells returns the cells of a row, or nil if its benchmark did not run.
func (r row) cells(got results) (cells []string, isOver bool, err error) {
	m, ok := got[r.benchmark]
	if !ok {
		return nil, false, nil
	}
	ours, ok := m.median(r.metric)
	if !ok {
		return nil, false, fmt.Errorf("%s reports no %s", r.benchmark, r.metric)
	}
	floor, hasFloor := m.median("floor-" + r.metric)
	ratio, _ := m.median(r.metric + "/floor")
	cells = []string{r.text, "", number(ours), "", "", ""}
	if hasFloor {
		cells[1], cells[3] = number(floor), fmt.Sprintf("%.2f", ratio)
	}
	if r.limit == "-" {
		return cells, false, nil
	}
	if len(r.limit) < 3 {
		return nil, false, fmt.Errorf("the limit %q has no number", r.limit)
	}
	value, text := ours, r.limit[2:]
	switch {
	case strings.HasSuffix(text, "x"):
		value, text = ratio, strings.TrimSuffix(text, "x")
	case strings.HasPrefix(text, "+"):
		value = ours - floor
	}
	limit, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, false, fmt.Errorf("the limit %q: %w", r.limit, err)
	}
	cells[4] = r.limit[:2] + " " + r.limit[2:]
	switch r.limit[:2] {
	case "<=":
		isOver = value > limit
	case ">=":
		isOver = value < limit
	default:
		return nil, false, fmt.Errorf("the limit %q begins neither with <= nor with >=", r.limit)
	}
	if cells[5] = "ok"; isOver {
		cells[5] = "OVER"
	}
	return cells, isOver, nil
}

// number is a value with about four digits.
func number(v float64) string {
	switch {
	case v >= 1000:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.3f", v)
	}
}
