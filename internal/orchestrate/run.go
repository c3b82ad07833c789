package orchestrate

import (
	"context"
	"fmt"
	"strings"
	"sync"
)

// Result is what became of a task: its worker's answer, or the error. A task that did not start because another failed
// has a [BlockedError].
type Result struct {
	Task Task
	Text string
	Err  error
}

// BlockedError is the error of a task that needs the results of tasks that failed. By has their names.
type BlockedError struct{ By []string }

// Error implements error.
func (e *BlockedError) Error() string {
	return "it needs the result of " + strings.Join(e.By, " and ") + ", which failed"
}

// Run runs the tasks of a plan, at most limit at a time, and returns their results in the plan's order. do runs one
// task with the results that it needs, and is called from several goroutines at the same time. A task starts as soon as
// those before it have ended well. When ctx ends, tasks that have not started don't start; Run always waits for do.
func Run(ctx context.Context, tasks []Task, limit int,
	do func(ctx context.Context, t Task, needs []Result) (string, error)) []Result {
	results := make([]Result, len(tasks))
	done := make([]chan struct{}, len(tasks))
	for i := range tasks {
		done[i] = make(chan struct{})
	}
	free := make(chan struct{}, limit)
	var all sync.WaitGroup
	for i, t := range tasks {
		all.Go(func() {
			defer close(done[i])
			results[i] = Result{Task: t}
			var needs []Result
			var by []string
			for _, n := range t.After {
				<-done[n]
				if results[n].Err != nil {
					by = append(by, results[n].Task.Name)
				}
				needs = append(needs, results[n])
			}
			if len(by) > 0 {
				results[i].Err = &BlockedError{by}
				return
			}
			select {
			case free <- struct{}{}:
				defer func() { <-free }()
			case <-ctx.Done():
			}
			if ctx.Err() != nil {
				results[i].Err = fmt.Errorf("it did not start: %w", context.Cause(ctx))
				return
			}
			results[i].Text, results[i].Err = do(ctx, t, needs)
		})
	}
	all.Wait()
	return results
}
