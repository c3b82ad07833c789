package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"tapgw/internal/proc"
)

// scenariosAtOnce is how many scenarios run at the same time: most of their time they wait for the
// sample.
const scenariosAtOnce = 4

// SDK plays every scenario of testdata/sdk with the sample program of an SDK: command, with the
// sample's name as its last argument. Each scenario is a rule of the report. next gets every rule
// before its result, in order, and each the result as soon as it is known. The error says why the
// run could not be finished.
func SDK(
	ctx context.Context, command []string, next func(Rule), each func(Result),
) (*Report, error) {
	all, err := Scenarios()
	if err != nil {
		return nil, err
	}
	home, err := os.MkdirTemp("", "conformance-*")
	if err != nil {
		return nil, fmt.Errorf("making a directory for files: %w", err)
	}
	defer os.RemoveAll(home)
	report := &Report{Subject: strings.Join(command, " ")}
	errs := &proc.Tail{Most: stderrLines}
	start := func(name, url, token string) (Program, error) {
		if name == "paired" { // it takes no token
			token = ""
		}
		return startProcess(slices.Concat(command, []string{name}), url, token, home, errs)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	results := make([]chan Result, len(all))
	slots := make(chan struct{}, scenariosAtOnce)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel(nil)
	for i, s := range all {
		results[i] = make(chan Result, 1)
		running.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			began := time.Now()
			err := ctx.Err()
			if err == nil {
				err = s.Play(ctx, start)
			}
			if errors.Is(err, errNoProgram) {
				cancel(err)
			}
			results[i] <- s.rule().result(err, time.Since(began))
		})
	}
	for i, c := range results {
		begin(next, all[i].rule())
		result := <-c
		if ctx.Err() != nil {
			return report, context.Cause(ctx)
		}
		report.add(result)
		each(result)
	}
	report.Stderr = errs.Lines()
	return report, nil
}
