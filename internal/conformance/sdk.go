package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// SDK plays every scenario of testdata/sdk with the sample program of an SDK: command, with the sample's name as its
// last argument. Each scenario is a rule of the report. each gets every result as soon as it is known. The error says
// why the run could not be finished.
func SDK(ctx context.Context, command []string, each func(Result)) (*Report, error) {
	all, err := Scenarios()
	if err != nil {
		return nil, err
	}
	home, err := os.MkdirTemp("", "conformance-*")
	if err != nil {
		return nil, fmt.Errorf("making a directory for files: %w", err)
	}
	defer os.RemoveAll(home)
	report, out := &Report{Subject: strings.Join(command, " ")}, &lines{}
	for _, s := range all {
		began := time.Now()
		err := s.Play(ctx, func(name, url, token string) (Program, error) {
			if name == "paired" { // it takes no token
				token = ""
			}
			with := append(append([]string(nil), command...), name)
			return startProcess(with, url, token, home, out)
		})
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
			return nil, err // there is no such program
		}
		result := s.rule().result(err, time.Since(began))
		report.add(result)
		each(result)
	}
	report.Stderr = out.all()
	return report, nil
}
