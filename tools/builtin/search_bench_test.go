package builtin

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tapgw/tools"
)

// manyFiles makes a workspace of 20,000 source files in 500 directories, 4 KB each
// on average, one in 20 ignored. "needle" is in 100 of them, "handle" in most.
func manyFiles(b *testing.B) *tools.Env {
	b.Helper()
	env := space(b, map[string]string{".gitignore": "*.log\n/gen/\n",
		".git/HEAD": "ref: refs/heads/main\n"})
	r := rand.New(rand.NewPCG(20, 26))
	words := strings.Fields(
		"func return if err nil handle request the value of a string context package server " +
			"client type struct for range index")
	endings := []string{".go", ".ts", ".py", ".md", ".java"}
	for i := range 20_000 {
		dir := fmt.Sprintf("d%02d/e%02d", i%25, i/25%20)
		ending := endings[i%len(endings)]
		if i%20 == 19 {
			ending = ".log"
		}
		var text bytes.Buffer
		for range 20 + r.IntN(180) {
			for range 2 + r.IntN(8) {
				text.WriteString(words[r.IntN(len(words))] + " ")
			}
			text.WriteByte('\n')
		}
		if i%200 == 0 {
			text.WriteString("a needle here\n")
		}
		put(b, env, fmt.Sprintf("%s/file%05d%s", dir, i, ending), text.String())
	}
	return env
}

// BenchmarkSearch compares the search tools with ripgrep as a user would run it,
// turn by turn in one tree. x-rg is the ratio of the medians; the aim is 1.5.
func BenchmarkSearch(b *testing.B) {
	rg, err := exec.LookPath("rg")
	if err != nil {
		b.Fatal("ripgrep (rg) is not installed: there is nothing to compare with")
	}
	env := manyFiles(b)
	for _, bm := range []struct {
		name, tool string
		args       args
		rg         []string
	}{
		{"files/all", "file_search", args{"query": "**"}, []string{"--files"}},
		{"files/some", "file_search", args{"query": "**/file001*.go"},
			[]string{"--files", "-g", "**/file001*.go"}},
		{"grep/rare", "grep_search", args{"query": "needle"}, []string{"-n", "-i", "-F", "needle"}},
		{"grep/none", "grep_search", args{"query": "haystack"},
			[]string{"-n", "-i", "-F", "haystack"}},
		{"grep/regexp", "grep_search", args{"query": `need\w+ here$`, "isRegexp": true},
			[]string{"-n", "-i", `need\w+ here$`}},
		{"grep/include", "grep_search", args{"query": "needle", "includePattern": "*.go"},
			[]string{"-n", "-i", "-F", "-g", "*.go", "needle"}},
		{"grep/common", "grep_search", args{"query": "struct for range index"},
			[]string{"-n", "-i", "-F", "struct for range index"}},
	} {
		b.Run(bm.name, func(b *testing.B) {
			var ours, theirs []time.Duration
			for b.Loop() {
				start := time.Now()
				if _, err := call(b, env, bm.tool, bm.args); err != nil {
					b.Fatal(err)
				}
				ours = append(ours, time.Since(start))
				theirs = append(theirs, bareRipgrep(b, rg, env.Root, bm.rg))
			}
			b.ReportMetric(float64(median(ours))/float64(median(theirs)), "x-rg")
			b.ReportMetric(float64(median(ours).Microseconds())/1000, "ms-ours")
			b.ReportMetric(float64(median(theirs).Microseconds())/1000, "ms-rg")
			b.ReportMetric(0, "ns/op") // both together say nothing
		})
	}
}

// bareRipgrep runs ripgrep and reads what it prints.
func bareRipgrep(b *testing.B, rg, dir string, args []string) time.Duration {
	b.Helper()
	cmd := exec.Command(rg, append(slices.Clone(args), "./")...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "RIPGREP_CONFIG_PATH=")
	var out bytes.Buffer
	cmd.Stdout = &out
	start := time.Now()
	err := cmd.Run()
	took := time.Since(start)
	if err != nil && (out.Len() > 0 || cmd.ProcessState.ExitCode() != 1) {
		b.Fatalf("%s: %v", filepath.Base(rg), err)
	}
	return took
}

func median(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}
