package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
)

// state is the state of a check, or of all of them.
type state string

const (
	passed  state = "passed"
	failed  state = "failed"
	running state = "running"
	none    state = "none" // there are no checks
)

// source says where the state of CI comes from: GitHub, or a file. A source is used by one
// goroutine at a time.
type source interface {
	// read returns the present state.
	read(ctx context.Context) (report, error)
	// log returns the end of a check's log, and findings the check's annotations.
	log(ctx context.Context, c check) (string, error)
	findings(ctx context.Context, c check) ([]finding, error)
}

// report is the state of CI for a branch. Its texts are foreign.
type report struct {
	Branch, Commit string // "" in a file
	Checks         []check
	Reviews        []review
}

// check is a job or a status. ID is another one for each run.
type check struct {
	ID, Name string
	State    state
	Detail   string // the check's own summary

	job, run int64     // of GitHub; 0 for other checks
	found    []finding // of a file
	text     string    // of a file: the log
}

// review is a comment of a person on the pull request.
type review struct {
	ID, Author, Place, Text string
}

// finding is a place in the code that a check complains about.
type finding struct {
	Place, Text string
}

func (r report) state() state {
	s := none
	for _, c := range r.Checks {
		switch {
		case c.State == failed:
			return failed
		case c.State == running || s == none:
			s = c.State
		}
	}
	return s
}

// failed returns the checks that failed, by name.
func (r report) failed() []check {
	red := slices.DeleteFunc(slices.Clone(r.Checks), func(c check) bool {
		return c.State != failed
	})
	slices.SortFunc(red, func(a, b check) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return red
}

// where names the subject of the report.
func (r report) where() string {
	switch {
	case r.Branch == "":
		return "the local CI"
	case r.Commit == "":
		return "branch " + clean(r.Branch)
	}
	return fmt.Sprintf("branch %s at %.12s", clean(r.Branch), clean(r.Commit))
}

// names lists checks.
func names(checks []check) string {
	const most = 10
	var all []string
	for _, c := range checks[:min(most, len(checks))] {
		all = append(all, fmt.Sprintf("%q", clean(c.Name)))
	}
	text := strings.Join(all, ", ")
	if more := len(checks) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
