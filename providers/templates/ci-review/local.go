package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	maxFile     = 32 << 20
	maxChecks   = 1000
	maxFindings = 200 // of a check
	maxDepth    = 20  // of suites in suites
	keptText    = 16 << 10
)

// local reads the results that a local CI writes: JUnit's XML, or JSON.
type local struct {
	dir, file string
}

func (l *local) read(context.Context) (report, error) {
	f, err := l.open()
	if errors.Is(err, fs.ErrNotExist) {
		return report{}, fmt.Errorf("there is no %s yet: run the local CI", l.file)
	}
	if err != nil {
		return report{}, fmt.Errorf("reading %s: %w", l.file, errors.Unwrap(err))
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is no file")
	}
	if err == nil && info.Size() > maxFile {
		err = fmt.Errorf("it is over %d bytes", maxFile)
	}
	var checks []check
	if err == nil {
		var data []byte
		if data, err = io.ReadAll(io.LimitReader(f, maxFile)); err == nil {
			checks, err = parse(data)
		}
	}
	if err != nil {
		return report{}, fmt.Errorf("reading %s: %w", l.file, err)
	}
	for i := range checks { // each run writes the file anew
		checks[i].ID = fmt.Sprintf("%d %d", info.ModTime().UnixNano(), i)
	}
	return report{Checks: checks}, nil
}

// open opens the file. A relative one stays in the session's directory, whatever links a repository
// has.
func (l *local) open() (*os.File, error) {
	if filepath.IsAbs(l.file) {
		return os.Open(l.file)
	}
	return os.OpenInRoot(l.dir, l.file)
}

func (l *local) log(_ context.Context, c check) (string, error)         { return c.text, nil }
func (l *local) findings(_ context.Context, c check) ([]finding, error) { return c.found, nil }

// parse reads JUnit's XML or JSON.
func parse(data []byte) ([]check, error) {
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		return parseJSON(data)
	}
	return parseJUnit(data)
}

func parseJSON(data []byte) ([]check, error) {
	var in struct {
		Checks []struct {
			Name, Status, Log string
			Findings          []struct {
				File    string
				Line    int
				Message string
			}
		}
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return nil, fmt.Errorf("its JSON is wrong: %s", clean(err.Error()))
	}
	if in.Checks == nil {
		return nil, errors.New(`it has no "checks"`)
	}
	var checks []check
	for i, c := range in.Checks[:min(len(in.Checks), maxChecks)] {
		s := state(c.Status)
		if s != passed && s != failed && s != running {
			return nil, fmt.Errorf("checks[%d].status is %q, want passed, failed or running", i,
				clean(c.Status))
		}
		one := check{Name: c.Name, State: s, text: lastBytes(c.Log)}
		for _, f := range c.Findings[:min(len(c.Findings), maxFindings)] {
			one.found = append(one.found, finding{place(f.File, f.Line), lastBytes(f.Message)})
		}
		checks = append(checks, one)
	}
	return checks, nil
}

// suite is an element testsuite or testsuites of JUnit's XML.
type suite struct {
	Name   string  `xml:"name,attr"`
	Suites []suite `xml:"testsuite"`
	Cases  []struct {
		Name      string    `xml:"name,attr"`
		ClassName string    `xml:"classname,attr"`
		File      string    `xml:"file,attr"`
		Line      string    `xml:"line,attr"`
		Failures  []outcome `xml:"failure"`
		Errors    []outcome `xml:"error"`
	} `xml:"testcase"`
}

// outcome is an element failure or error.
type outcome struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

func parseJUnit(data []byte) ([]check, error) {
	d := xml.NewDecoder(bytes.NewReader(data))
	d.CharsetReader = func(charset string, r io.Reader) (io.Reader, error) {
		if strings.EqualFold(charset, "us-ascii") || strings.EqualFold(charset, "utf8") {
			return r, nil
		}
		return nil, errors.New("its encoding is not UTF-8")
	}
	var root struct {
		XMLName xml.Name
		suite
	}
	if err := d.Decode(&root); err != nil {
		return nil, fmt.Errorf("its XML is wrong: %s", clean(err.Error()))
	}
	if root.XMLName.Local != "testsuites" && root.XMLName.Local != "testsuite" {
		return nil, fmt.Errorf("it is <%s>, want JUnit's <testsuites> or <testsuite>",
			clean(root.XMLName.Local))
	}
	return root.checks(nil, 0)
}

// checks makes a check of each suite that has tests.
func (s *suite) checks(all []check, depth int) ([]check, error) {
	if depth > maxDepth || len(all) >= maxChecks {
		return nil, fmt.Errorf("it has over %d suites, or suites in suites over %d deep", maxChecks,
			maxDepth)
	}
	if len(s.Cases) > 0 {
		c := check{Name: s.Name, State: passed}
		if c.Name == "" {
			c.Name = "tests"
		}
		var text strings.Builder
		for _, test := range s.Cases {
			for _, o := range append(test.Failures, test.Errors...) {
				c.State = failed
				if len(c.found) == maxFindings {
					break
				}
				line, _ := strconv.Atoi(test.Line)
				at := place(test.File, line)
				if test.File == "" {
					at = strings.TrimPrefix(test.ClassName+"."+test.Name, ".")
				}
				said := strings.TrimSpace(o.Message + "\n" + o.Text)
				c.found = append(c.found, finding{at, lastBytes(test.Name + ": " + said)})
				fmt.Fprintf(&text, "%s: %s\n", test.Name, said)
			}
		}
		c.text = lastBytes(text.String())
		all = append(all, c)
	}
	var err error
	for i := range s.Suites {
		if all, err = s.Suites[i].checks(all, depth+1); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// lastBytes keeps the end of a text.
func lastBytes(s string) string { return s[max(0, len(s)-keptText):] }
