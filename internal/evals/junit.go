package evals

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"strings"

	"tapgw/internal/visible"
)

type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string      `xml:"classname,attr"`
	Name    string      `xml:"name,attr"`
	Time    string      `xml:"time,attr"`
	Failure *junitFault `xml:"failure"`
	Error   *junitFault `xml:"error"`
}

type junitFault struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// JUnit returns the report as a JUnit XML file: a test case for each case, with a failure for one
// that did not pass and an error for one without a decision. Control characters are made visible.
func (r *Report) JUnit() ([]byte, error) {
	suite := junitSuite{Name: "evals", Tests: len(r.Cases)}
	for _, c := range r.Cases {
		j := junitCase{Class: cmp.Or(visible.Line(c.Category), "evals"), Name: c.ID,
			Time: fmt.Sprintf("%d.%03d", c.DurationMs/1000, c.DurationMs%1000)}
		var lines []string
		for _, run := range c.Results {
			if why := run.Why(); why != "" {
				lines = append(lines, fmt.Sprintf("run %d: %s: %s", run.Run, run.State,
					visible.Line(why)))
			}
		}
		fault := &junitFault{fmt.Sprintf("%d of %d decided runs passed", c.Passed, c.Decided),
			strings.Join(lines, "\n")}
		switch c.State {
		case Failed:
			suite.Failures++
			j.Failure = fault
		case Broken, Undecided:
			suite.Errors++
			j.Error = fault
		}
		suite.Cases = append(suite.Cases, j)
	}
	if r.Error != "" { // so that no CI system takes the file for a whole run
		suite.Tests++
		suite.Errors++
		suite.Cases = append(suite.Cases,
			junitCase{Class: "evals", Name: "the runs come to their end", Time: "0.000",
				Error: &junitFault{Message: visible.Line(r.Error)}})
	}
	text, err := xml.MarshalIndent(suite, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the JUnit file: %w", err)
	}
	return append([]byte(xml.Header), append(text, '\n')...), nil
}
