package cli

import (
	"context"
	"fmt"
	"sync"
)

// Status says how serious the result of a check is. It is the same word in the text and in the JSON
// of doctor.
type Status string

// Statuses of a check. Only [StatusFail] makes doctor exit with code 1. Each status has its own
// colour.
const (
	StatusOK   Status = "ok"
	StatusWarn Status = "warn"
	StatusFail Status = "fail"
)

// Check is one check of the command doctor. Name stands before its result. Run must return when ctx
// ends; it runs on a goroutine of its own, beside all other checks.
type Check struct {
	Name string
	Run  func(ctx context.Context) Result
}

// Result is the result of a check. Detail describes it in a few words. Cure is advice for the user,
// often a command. [Doctor] prints each of them on one line.
type Result struct {
	Status Status
	Detail string
	Cure   string // "" if no step is needed
}

// OK returns the result of a check that found no problem. The formatted text describes the working
// part, for example by its version or address.
func OK(format string, args ...any) Result {
	return Result{Status: StatusOK, Detail: fmt.Sprintf(format, args...)}
}

// Warn returns the result of a check that found a problem with which the program still works. It
// does not change doctor's exit code. cure is advice for the user, which may be "".
func Warn(cure, format string, args ...any) Result {
	return Result{Status: StatusWarn, Detail: fmt.Sprintf(format, args...), Cure: cure}
}

// Fail returns the result of a check that found a part that does not work, so that doctor exits
// with code 1. cure is advice for the user, which may be "".
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

// Doctor runs checks at the same time and prints their results in the order of the list, each as
// soon as it and all before it have ended; with --json all in one document. If a check failed, it
// returns an error with exit code 1 and no message.
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
