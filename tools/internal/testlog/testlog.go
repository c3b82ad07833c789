// Package testlog finds the failed tests in the output of test runners: go, pytest,
// unittest, jest, vitest, maven, gradle and cargo.
package testlog

import (
	"fmt"
	"slices"
	"strings"

	"tapgw/internal/lazyregexp"
)

// Log collects the failures and totals from the lines of an output: the first 50 different failures
// and the number of further ones, and the first 20 totals. The zero value is empty. One goroutine
// may use it at a time.
type Log struct {
	failures []string
	more     int      // number of further failures
	totals   []string // lines that count tests

	awaitsDetail bool   // the next line may explain the last failure
	indent       string // of the line that named the last failure
}

const (
	maxFailures = 50
	maxTotals   = 20
	maxLine     = 300
)

// failed match lines that name a failure. Its name is the group, or the whole line.
var failed = []*lazyregexp.Regexp{
	lazyregexp.New(`^\s*--- FAIL: (.+?)(?: \([\d.]+s\))?$`),     // go
	lazyregexp.New(`^(?:panic: .+|fatal error: .+)`),            // go
	lazyregexp.New(`^\S+\.go:\d+:\d+: .+`),                      // go build
	lazyregexp.New(`^FAIL\s+(\S+ \[(?:build|setup) failed\])`),  // go
	lazyregexp.New(`^(?:FAILED|ERROR) (\S+\.py\S*(?: - .+)?)$`), // pytest
	lazyregexp.New(`^(?:FAIL|ERROR): (\w+ \(.+\))$`),            // unittest
	lazyregexp.New(`^\s*● (.+ › .+)$`),                          // jest
	lazyregexp.New(`^\s*FAIL\s+(\S+\.[cm]?[jt]sx? > .+)$`),      // vitest
	lazyregexp.New(`^\[ERROR\]\s+(\w[\w.$]*[.:]\w+:\d+.*)$`),    // maven
	lazyregexp.New(`^(\S.* > .+) FAILED$`),                      // gradle
	lazyregexp.New(`^test (\S+) \.\.\. FAILED$`),                // cargo
}

// counts match lines with the numbers of tests that passed and failed.
var counts = []*lazyregexp.Regexp{
	lazyregexp.New(`^FAIL\t(\S+\t[\d.]+s)$`), // go
	// pytest
	lazyregexp.New(`^=+ (.*\b(?:passed|failed|errors?|no tests ran)\b.* in [\d.]+s.*?) =+$`),
	// unittest
	lazyregexp.New(`^(?:Ran \d+ tests? in .+|FAILED \((?:failures|errors)=.+\))$`),
	// jest, vitest
	lazyregexp.New(`^\s*(?:Tests|Test Suites|Test Files):?\s+\d+ .+$`),
	lazyregexp.New(`^(?:\[\w+\]\s+)?(Tests run: \d+, Failures: \d+, Errors: \d+[^-]*?)$`), // maven
	lazyregexp.New(`^\d+ tests? completed, \d+ failed.*$`),                                // gradle
	lazyregexp.New(`^test result: .+$`),                                                   // cargo
}

// Add reads the next line of the output, without its newline. Lines of more than 300 bytes are cut.
// A deeper indented line behind a failure of go explains it and becomes part of it.
func (l *Log) Add(line string) {
	if len(line) > maxLine {
		line = strings.ToValidUTF8(line[:maxLine], "") + "..."
	}
	if l.awaitsDetail {
		l.awaitsDetail = false
		indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
		if len(indent) > len(l.indent) && name(failed, line) == "" {
			l.failures[len(l.failures)-1] += ": " + strings.TrimSpace(line)
			return
		}
	}
	if s := name(failed, line); s != "" {
		switch {
		case slices.Contains(l.failures, s):
		case len(l.failures) == maxFailures:
			l.more++
		default:
			l.failures = append(l.failures, s)
			l.awaitsDetail = strings.Contains(line, "--- FAIL: ")
			l.indent, _, _ = strings.Cut(line, "---")
		}
		return
	}
	if s := name(counts, line); s != "" && len(l.totals) < maxTotals &&
		!slices.Contains(l.totals, s) {
		l.totals = append(l.totals, s)
	}
}

// name returns the name that the first matching pattern finds in a line, or "" if no pattern
// matches.
func name(patterns []*lazyregexp.Regexp, line string) string {
	for _, p := range patterns {
		if m := p.FindStringSubmatch(line); m != nil {
			return strings.TrimSpace(m[len(m)-1])
		}
	}
	return ""
}

// String lists the failed tests, one a line below a line with their number, and then the totals as
// the test runner wrote them. It is "" if there are neither.
func (l *Log) String() string {
	var b strings.Builder
	if n := len(l.failures) + l.more; n > 0 {
		fmt.Fprintf(&b, "Failed (%d):\n", n)
		for _, f := range l.failures {
			fmt.Fprintf(&b, "- %s\n", f)
		}
		if l.more > 0 {
			fmt.Fprintf(&b, "- and %d more\n", l.more)
		}
	}
	for _, t := range l.totals {
		fmt.Fprintf(&b, "%s\n", t)
	}
	return b.String()
}
