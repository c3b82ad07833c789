package orchestrate

import (
	"context"
	"fmt"
	"strings"
)

// Result is the result of a task: its worker's answer, or the error. A task that did not start
// because another failed has a [BlockedError].
type Result struct {
	Task Task
	Text string
	Err  error
}

// BlockedError is the error of a task that needs the results of tasks that failed. By has their
// names.
type BlockedError struct{ By []string }

// Error implements error.
func (e *BlockedError) Error() string {
	return "it needs the result of " + strings.Join(e.By, " and ") + ", which failed"
}

// Run runs the tasks of a plan, at most limit at a time, and returns their results in the plan's
// order. do runs one task with the results that it needs, and is called from several goroutines at
// the same time. A task starts when those that it needs have ended well; of several, the earlier in
// the plan starts first. When ctx ends, no further task starts. Run always waits for do.
func Run(ctx context.Context, tasks []Task, limit int,
	do func(ctx context.Context, t Task, needs []Result) (string, error)) []Result {
	r := run{results: make([]Result, len(tasks)), started: make([]bool, len(tasks)),
		ended: make([]bool, len(tasks))}
	done := make(chan int)
	for running := 0; ; running-- {
		for i, t := range tasks {
			needs, isReady := r.needs(t)
			if r.started[i] || !isReady || running == limit && ctx.Err() == nil {
				continue
			}
			r.started[i], r.results[i] = true, Result{Task: t}
			if r.results[i].Err = blocked(ctx, needs); r.results[i].Err != nil {
				r.ended[i] = true
				continue
			}
			running++
			go func() {
				r.results[i].Text, r.results[i].Err = do(ctx, t, needs)
				done <- i
			}()
		}
		if running == 0 {
			return r.results
		}
		r.ended[<-done] = true
	}
}

// run is one run of a plan. Only the goroutine of Run uses it, except that each task's goroutine
// writes that task's result.
type run struct {
	results        []Result
	started, ended []bool
}

// needs returns the results that a task needs; isReady is false if one is missing.
func (r *run) needs(t Task) (needs []Result, isReady bool) {
	for _, n := range t.After {
		if !r.ended[n] {
			return nil, false
		}
		needs = append(needs, r.results[n])
	}
	return needs, true
}

// blocked returns why a task can't start.
func blocked(ctx context.Context, needs []Result) error {
	var by []string
	for _, n := range needs {
		if n.Err != nil {
			by = append(by, n.Task.Name)
		}
	}
	switch {
	case len(by) > 0:
		return &BlockedError{by}
	case ctx.Err() != nil:
		return fmt.Errorf("it did not start: %w", context.Cause(ctx))
	}
	return nil
}
