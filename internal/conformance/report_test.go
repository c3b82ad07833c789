package conformance

import (
	"encoding/xml"
	"errors"
	"strings"
	"testing"
	"time"
)

// A report has texts of foreign programs in a form that no terminal obeys and every XML parser
// reads.
func TestReportIsHarmless(t *testing.T) {
	const hostile = "a\x1b[2J\x00]]>&\u202eb\nc"
	report := &Report{Subject: hostile, Stderr: []string{hostile, "plain"}}
	rule := Rule{ID: "call.once", Title: "A call has one result", Section: "tool.result",
		Kind: Must}
	for _, err := range []error{fail(hostile, "%s", hostile), skipf("%s", hostile),
		errors.New(hostile), nil} {
		report.add(rule.result(err, 1500*time.Millisecond))
	}
	rule.Kind, rule.Spec = Should, core+"tool.result"
	report.add(rule.result(fail("w", "g"), 0))
	text, err := report.JUnit(nil)
	if err != nil {
		t.Fatal(err)
	}
	var read junitSuites
	if err := xml.Unmarshal(text, &read); err != nil {
		t.Fatalf("reading the JUnit file: %v, want XML\n%s", err, text)
	}
	if strings.ContainsAny(string(text), "\x00\x1b\u202e") {
		t.Errorf("the JUnit file has control characters, want none: %q", text)
	}
	suite := read.Suites[0]
	if suite.Tests != 5 || suite.Failures != 2 || suite.Skipped != 1 || suite.Time != "6.000" {
		t.Errorf("the suite has %d tests, %d failures, %d skipped in %s, want 5, 2, 1 in 6.000",
			suite.Tests, suite.Failures, suite.Skipped, suite.Time)
	}
	const want = "got:  a\\x1b[2J\\x00]]>&\\u202eb\\nc\nwant: a\\x1b[2J\\x00]]>&\\u202eb\\nc\n" +
		"see:  docs/protocol.md, tool.result\n"
	if got := suite.Cases[0].Failure.Text; got != want {
		t.Errorf("the failure is %q, want %q", got, want)
	}
	const advised = "got:  g\nwant: w\nsee:  docs/protocol.md, tool.result; Core Profile, tool.result\n"
	if got := suite.Cases[4]; got.Advice != advised || got.Failure != nil || report.Advice != 1 {
		t.Errorf("advice is %+v, want a test case that passes with the output %q", got, advised)
	}
	if got, want := report.Results[2].Want, rule.Title; got != want {
		t.Errorf("an error without an expectation wants %q, want the rule's title %q", got, want)
	}
}
