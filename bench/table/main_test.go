package main

import (
	"os"
	"strings"
	"testing"
)

const output = `goos: linux
BenchmarkCall/providers=50-2  41  1.04 p50-us/floor  104 p50-us  100 floor-p50-us  0.9 cpu/floor  9 cpu  10 floor-cpu
BenchmarkCall/providers=50-2  41  1.06 p50-us/floor  106 p50-us  100 floor-p50-us  0.9 cpu/floor  9 cpu  10 floor-cpu
BenchmarkCall/providers=50-2  41  1.07 p50-us/floor  107 p50-us  100 floor-p50-us  0.9 cpu/floor  9 cpu  10 floor-cpu
BenchmarkIdle  3  12.5 more-MiB
PASS
`

// TestWrite checks the three kinds of limits on the median of three runs.
func TestWrite(t *testing.T) {
	got, err := read(strings.NewReader(output))
	if err != nil {
		t.Fatal(err)
	}
	for row, want := range map[string]string{
		"Call/providers=50 p50-us <=1.06x a call": "a call 100.0 106.0 1.06 <= 1.06x ok",
		"Call/providers=50 p50-us <=1.05x a call": "a call 100.0 106.0 1.06 <= 1.05x OVER",
		"Call/providers=50 p50-us <=+5 a call":    "a call 100.0 106.0 1.06 <= +5 OVER",
		"Call/providers=50 cpu >=0.95x a call":    "a call 10.0 9.000 0.90 >= 0.95x OVER",
		"Call/providers=50 cpu - a call":          "a call 10.0 9.000 0.90",
		"Idle more-MiB <=20 memory":               "memory 12.5 <= 20 ok",
		"Other ms <=20 did not run":               "",
	} {
		var out strings.Builder
		if err := write(&out, "# Title\n"+row, got); err != nil {
			t.Fatalf("%s: %v", row, err)
		}
		line := ""
		if _, rest, ok := strings.Cut(out.String(), "limit"); ok {
			line = strings.Join(strings.Fields(strings.Split(rest, "\n")[1]), " ")
		}
		if line != want {
			t.Errorf("%s: the table has %q, want %q", row, line, want)
		}
	}
	for _, row := range []string{"Idle more-KiB - wrong metric", "Idle more-MiB <20 wrong",
		"Idle more-MiB <=x wrong",
		"Idle more-MiB -"} {
		if err := write(&strings.Builder{}, row, got); err == nil {
			t.Errorf("%s: no error, want one", row)
		}
	}
}

// TestRowsRun checks that ci/bench.sh runs the benchmark of each row.
func TestRowsRun(t *testing.T) {
	script, err := os.ReadFile("../../ci/bench.sh")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(rows) {
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, "//") ||
			strings.TrimSpace(line) == "" {
			continue
		}
		name, _, _ := strings.Cut(strings.Fields(line)[0], "/")
		if !strings.Contains(string(script)+" ", " "+name) {
			t.Errorf("ci/bench.sh does not run %s", name)
		}
	}
}
