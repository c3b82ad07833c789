package cli

import (
	"context"
	"fmt"
	"sync"
)

// Status is what a check found.
type Status string

// Statuses of a check.
const (
	StatusOK   Status = "ok"
	StatusWarn Status = "warn"
	StatusFail Status = "fail"
)

// Check is a check of doctor. Checks run at the same time.
type Check struct {
	Name string
	Run  func(ctx context.Context) Result
}

// Result is what a check found and what to do about it.
type Result struct {
	Status Status
	Detail string
	Cure   string // "" when there is nothing to do
}

// OK returns the result of a check that found no problem.
func OK(format string, args ...any) Result {
	return Result{Status: StatusOK, Detail: fmt.Sprintf(format, args...)}
}

// Warn returns the result of a check that found a problem with which the program still works.
func Warn(cure, format string, args ...any) Result {
	return Result{Status: StatusWarn, Detail: fmt.Sprintf(format, args...), Cure: cure}
}

// Fail returns the result of a check that found something that does not work.
func Fail(cure, format string, args ...any) Result {
	return Result{Status: StatusFail, Detail: fmt.Sprintf(format, args...), Cure: cure}
}

// checkLine is a check as --json shows it.
type checkLine struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	Detail string `json:"detail"`
	Cure   string `json:"cure"`
}

// Doctor runs checks at the same time and prints their results in their order. It returns an
// error with exit code 1 when a check failed.
func Doctor(ctx context.Context, o *Output, checks []Check) error {
	results := make([]Result, len(checks))
	done := make([]chan struct{}, len(checks))
	var all sync.WaitGroup
	defer all.Wait()
	for i, c := range checks {
		done[i] = make(chan struct{})
		all.Go(func() {
			defer close(done[i])
			results[i] = c.Run(ctx)
		})
	}
	lines := make([]checkLine, 0, len(checks))
	failed := false
	for i, c := range checks {
		<-done[i]
		r := results[i]
		failed = failed || r.Status == StatusFail
		lines = append(lines, checkLine{c.Name, r.Status, r.Detail, r.Cure})
		if o.JSON {
			continue
		}
		status := o.Paint(r.Status.ink(), fmt.Sprintf("%-4s", r.Status))
		if err := o.Printf("%s  %s: %s\n", status, c.Name, OneLine(r.Detail)); err != nil {
			return err
		}
		if r.Cure != "" {
			if err := o.Printf("      %s\n", OneLine(r.Cure)); err != nil {
				return err
			}
		}
	}
	if o.JSON {
		if err := o.Document(lines); err != nil {
			return err
		}
	}
	if failed {
		return Reported(ExitFailed)
	}
	return nil
}

func (s Status) ink() Ink {
	switch s {
	case StatusOK:
		return Green
	case StatusWarn:
		return Yellow
	}
	return Red
}
