package conformance

import (
	"encoding/xml"
	"fmt"
	"strings"

	"tapgw/internal/visible"
)

// Types of a JUnit file, as CI systems read them.
type (
	junitSuites struct {
		XMLName xml.Name     `xml:"testsuites"`
		Suites  []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Time     string      `xml:"time,attr"`
		Cases    []junitCase `xml:"testcase"`
		Stderr   string      `xml:"system-err,omitempty"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Time    string        `xml:"time,attr"`
		Failure *junitFailure `xml:"failure"`
		Error   *junitError   `xml:"error"`
		Skipped *junitSkipped `xml:"skipped"`
		Advice  string        `xml:"system-out,omitempty"`
	}
	junitFailure struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr"`
		Text    string `xml:",chardata"`
	}
	junitError struct {
		Message string `xml:"message,attr"`
	}
	junitSkipped struct {
		Message string `xml:"message,attr"`
	}
)

// JUnit returns the report as a JUnit XML file: one suite, and a test case for each rule, whose
// class is the rule's section. The subject is the suite's name. Advice is the output of a test case
// that passes. Control characters of foreign text are made visible. cut is the error that ended the
// run early, or nil; it is one more test case, so that no CI system takes the file for a whole run.
func (r *Report) JUnit(cut error) ([]byte, error) {
	suite := junitSuite{Name: visible.Line(r.Subject), Tests: len(r.Results), Failures: r.Failed,
		Skipped: r.Skipped, Stderr: visible.Controls(strings.Join(r.Stderr, "\n"))}
	total := int64(0)
	for _, result := range r.Results {
		total += result.DurationMs
		c := junitCase{Class: result.Section, Name: result.ID + ": " + result.Title,
			Time: seconds(result.DurationMs)}
		switch result.Outcome {
		case Failed:
			c.Failure = &junitFailure{Message: visible.Line(result.Got), Type: string(result.Kind),
				Text: result.Explanation()}
		case Advice:
			c.Advice = result.Explanation()
		case Skipped:
			c.Skipped = &junitSkipped{Message: visible.Line(result.Reason)}
		case Passed:
		}
		suite.Cases = append(suite.Cases, c)
	}
	if cut != nil {
		suite.Tests++
		suite.Errors++
		suite.Cases = append(suite.Cases, junitCase{Class: "run", Name: "the run comes to its end",
			Time: seconds(0), Error: &junitError{Message: visible.Line(cut.Error())}})
	}
	suite.Time = seconds(total)
	text, err := xml.MarshalIndent(junitSuites{Suites: []junitSuite{suite}}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the JUnit file: %w", err)
	}
	return append([]byte(xml.Header), append(text, '\n')...), nil
}

// Explanation returns the text for people about a broken rule: three lines with the observation,
// the expectation, and the section that demands it.
func (r Result) Explanation() string {
	where := r.Section
	if !strings.HasPrefix(where, "testdata/") {
		where = "docs/protocol.md, " + where
	}
	if r.Spec != "" && r.Spec != ours {
		where += "; " + r.Spec
	}
	return fmt.Sprintf("got:  %s\nwant: %s\nsee:  %s\n", visible.Line(r.Got), visible.Line(r.Want),
		where)
}

func seconds(ms int64) string { return fmt.Sprintf("%d.%03d", ms/1000, ms%1000) }
