package main

import (
	"context"
	"fmt"
	"strings"

	"tapgw/providers"
)

const (
	toolLines = 200 // of a log
	maxLines  = 1000
)

type checkArgs struct {
	Check string `json:"check"           jsonschema:"the name of a check, as ci_status lists it"`
	Lines int    `json:"lines,omitempty" jsonschema:"how many of the last lines, at most 1000; 200 if left out"`
}

func (w *watcher) addTools() {
	providers.AddTool(w.p, "ci_status",
		"The state of CI for the session's branch: each check, and how many review "+
			"comments there are", w.status)
	providers.AddTool(w.p, "ci_log", "The end of a check's log", w.checkLog)
	providers.AddTool(w.p, "ci_findings",
		"What the failed checks found, with file and line, and the review comments of "+
			"the pull request", w.findings)
}

func (w *watcher) status(ctx context.Context, _ struct{}) (string, error) {
	r, age, err := w.now(ctx)
	if err != nil && age == 0 {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "CI is %s on %s, %d s ago; %d review comments.\n", r.state(), r.where(),
		int(age.Seconds()), len(r.Reviews))
	if err != nil {
		fmt.Fprintf(&b, "There is nothing newer: %s.\n", clean(err.Error()))
	}
	var lines []string
	for _, c := range r.Checks {
		lines = append(lines, fmt.Sprintf("%s: %s", c.State, clean(c.Name)))
	}
	b.WriteString(quote(strings.Join(lines, "\n"), toolLines))
	return b.String(), nil
}

// checkLog returns the log of the check with a name; if several have it, that of one that failed.
func (w *watcher) checkLog(ctx context.Context, in checkArgs) (string, error) {
	r, _, err := w.now(ctx)
	var found *check
	for i, c := range r.Checks {
		if clean(c.Name) == in.Check && (found == nil || c.State == failed) {
			found = &r.Checks[i]
		}
	}
	switch {
	case found == nil && err != nil:
		return "", err
	case found == nil:
		return "", providers.NotFound("no check is called %q: ci_status lists them",
			clean(in.Check))
	}
	if err := w.acquire(ctx); err != nil {
		return "", err
	}
	defer w.release()
	text, err := w.source.log(ctx, *found)
	if err != nil {
		return "", err
	}
	lines := in.Lines
	if lines <= 0 {
		lines = toolLines
	}
	return quote(text, min(lines, maxLines)), nil
}

func (w *watcher) findings(ctx context.Context, _ struct{}) (string, error) {
	r, age, err := w.now(ctx)
	if err != nil && age == 0 {
		return "", err
	}
	if err := w.acquire(ctx); err != nil {
		return "", err
	}
	defer w.release()
	var lines []string
	for _, c := range r.failed() {
		found, err := w.source.findings(ctx, c)
		if err != nil {
			return "", err
		}
		for _, f := range found {
			lines = append(lines, fmt.Sprintf("%s: %s: %s", clean(c.Name), clean(f.Place),
				clean(f.Text)))
		}
	}
	const most = 100
	more := max(0, len(lines)-most)
	return fmt.Sprintf("%d findings (%d left out).\n%s\n%d review comments.\n%s", len(lines), more,
		quote(strings.Join(lines[:len(lines)-more], "\n"), most), len(r.Reviews),
		showReviews(r.Reviews, 50)), nil
}
